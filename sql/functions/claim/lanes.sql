-- lanes: list the lanes that this worker may claim from, most urgent first, and when their next
-- jobs are due.
-- If there are more than 1,000 lanes, it returns 1,000 of them and begins at another place each
-- time, so that no call costs more. A worker with queues of its own reads only those.
-- out:   due_in: seconds until the next job of the lane is due; null: there is none
create or replace function redrive.lanes_v1(only_queues text[])
returns table (queue text, priority smallint, lane smallint, due_in float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    at_most constant int := 1000;
    start text;
    start_priority int;
    known text[];          -- queues, with their priorities and lanes below
    priorities smallint[];
    numbers smallint[];
begin
    -- The first step of a scan is slow if an open snapshot keeps dead rows: 20 ms for 100,000 of
    -- them. So there is one scan, except if there are too many lanes.
    select array_agg(l.queue), array_agg(l.priority), array_agg(l.lane)
    into known, priorities, numbers
    from redrive.next_lanes_v1(only_queues, '', 0, 0, at_most + 1) l;
    if cardinality(known) > at_most then
        -- Choose each queue with the same probability, so that a small queue is not behind large
        -- ones.
        select n.queue into start from redrive.names n
        where only_queues is null or n.queue = any (only_queues) order by random() limit 1;
        start_priority := -1001 + random() * 2000;
        with from_here as materialized (
            select l.* from redrive.next_lanes_v1(
                only_queues, coalesce(start, ''), start_priority, 0, at_most) l)
        select array_agg(l.queue), array_agg(l.priority), array_agg(l.lane)
        into known, priorities, numbers
        from (
            select * from from_here
            union all
            (select * from unnest(known, priorities, numbers)
             limit at_most - (select count(*) from from_here))) l;
    end if;
    return query
    select f.queue, f.priority, f.lane, (
        select extract(epoch from j.run_at - clock_timestamp())::float8 from redrive.jobs j
        where j.queue = f.queue and j.priority = f.priority and j.lane = f.lane
          and j.run_at > now() and j.run_at < 'infinity'
        order by j.run_at limit 1)
    from unnest(known, priorities, numbers) as f(queue, priority, lane)
    where not exists (select from redrive.queues q
                      where q.queue = f.queue and q.paused_at is not null)
    order by f.priority;
end
$$;

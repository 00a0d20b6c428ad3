-- lanes: the ones this worker may claim from, most urgent first, and when each one's next job is
-- due (seconds from now, null = none). Where there are more than 1,000 they are 1,000 of them, from
-- another place at each look, so that no look costs more than that; a worker with queues of its own
-- looks at no others.
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
    known text[];          -- queues, priorities and lanes
    priorities smallint[];
    numbers smallint[];
begin
    -- Dead rows that an open snapshot keeps make the first step of a scan long: 20 ms beyond
    -- 100,000 of them. So there is one scan, but where there are too many lanes.
    select array_agg(l.queue), array_agg(l.priority), array_agg(l.lane)
    into known, priorities, numbers
    from redrive.next_lanes_v1(only_queues, '', 0, 0, at_most + 1) l;
    if cardinality(known) > at_most then
        -- Each queue is as likely, so that few jobs are not behind many.
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

-- lanes: list the lanes after a place from which this worker may claim, in the order of the index, and
-- when their next jobs are due. The list goes on at the beginning, up to that place.
-- If there are more than `at_most` lanes, the worker calls again with the last lane of the list. So it
-- sees every lane in turn, and no call costs more.
-- in:    only_queues: null: all queues
-- out:   due_in: seconds until the next job of the lane is due; null: there is none
--        is_paused: no worker claims from it
create or replace function redrive.lanes_v2(
    only_queues text[], after_queue text, after_priority int, after_lane int, at_most int)
returns table (queue text, priority smallint, lane smallint, due_in float8, is_paused boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    known text[];          -- queues, with their priorities and lanes below
    priorities smallint[];
    numbers smallint[];
begin
    select array_agg(l.queue), array_agg(l.priority), array_agg(l.lane)
    into known, priorities, numbers
    from redrive.next_lanes_v1(only_queues, after_queue, after_priority, after_lane, at_most) l;
    -- The first step of a scan is slow if an open snapshot keeps dead rows: 20 ms for 100,000 of
    -- them. So there is one scan, except if there were too many lanes.
    if after_queue <> '' and coalesce(cardinality(known), 0) < at_most then
        select known || array_agg(l.queue), priorities || array_agg(l.priority),
               numbers || array_agg(l.lane)
        into known, priorities, numbers
        from redrive.next_lanes_v1(
            only_queues, '', 0, 0, at_most - coalesce(cardinality(known), 0)) l
        where (l.queue, l.priority, l.lane) <= (after_queue, after_priority, after_lane);
    end if;
    return query
    select f.queue, f.priority, f.lane, (
        select extract(epoch from j.run_at - clock_timestamp())::float8 from redrive.jobs j
        where j.queue = f.queue and j.priority = f.priority and j.lane = f.lane
          and j.run_at > now() and j.run_at < 'infinity'
        order by j.run_at limit 1),
        exists (select from redrive.queues q
                where q.queue = f.queue and q.paused_at is not null)
    from unnest(known, priorities, numbers) with ordinality as f(queue, priority, lane, place)
    order by f.place;
end
$$;

-- Workers of older versions call this one.
create or replace function redrive.lanes_v1(only_queues text[])
returns table (queue text, priority smallint, lane smallint, due_in float8)
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select l.queue, l.priority, l.lane, l.due_in
    from redrive.lanes_v2(only_queues, coalesce((
        -- Choose each queue with the same probability, so that a small queue is not behind large
        -- ones.
        select n.queue from redrive.names n
        where only_queues is null or n.queue = any (only_queues)
        order by random() limit 1), ''), (-1001 + random() * 2000)::int, 0, 1000) l
    where not l.is_paused
    order by l.priority
$$;

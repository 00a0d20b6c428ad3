-- next_lanes: list the first `at_most` lanes after a place, in the order of the index.
-- This is a loose index scan: one descent for each lane, however many jobs it holds. The condition
-- on the queue alone lets the planner use the index.
-- in:    only_queues: null: all queues
create or replace function redrive.next_lanes_v1(
    only_queues text[], after_queue text, after_priority int, after_lane int, at_most int)
returns table (queue text, priority smallint, lane smallint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    if only_queues is null then
        return query
        with recursive found as (
            (select j.queue, j.priority, j.lane from redrive.jobs j
             where (j.queue, j.priority, j.lane)
                   > (after_queue, after_priority::smallint, after_lane::smallint)
               and j.queue >= after_queue
             order by j.queue, j.priority, j.lane limit 1)
            union all
            select n.queue, n.priority, n.lane
            from found f, lateral (
                select j.queue, j.priority, j.lane from redrive.jobs j
                where (j.queue, j.priority, j.lane) > (f.queue, f.priority, f.lane)
                  and j.queue >= f.queue
                order by j.queue, j.priority, j.lane limit 1) n)
        select f.queue, f.priority, f.lane from found f limit at_most;
        return;
    end if;
    return query
    select w.queue, l.priority, l.lane
    from (select distinct o.queue from unnest(only_queues) as o(queue)
          where o.queue >= after_queue order by 1) w,
    lateral (
        with recursive found as (
            (select j.priority, j.lane from redrive.jobs j
             where j.queue = w.queue and (w.queue > after_queue or (j.priority, j.lane)
                   > (after_priority::smallint, after_lane::smallint))
             order by j.priority, j.lane limit 1)
            union all
            select n.priority, n.lane
            from found f, lateral (
                select j.priority, j.lane from redrive.jobs j
                where j.queue = w.queue and (j.priority, j.lane) > (f.priority, f.lane)
                order by j.priority, j.lane limit 1) n)
        select f.priority, f.lane from found f) l
    limit at_most;
end
$$;

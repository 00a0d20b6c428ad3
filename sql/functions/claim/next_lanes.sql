-- next_lanes: list the first `at_most` lanes after a place, in the order of the index.
-- This is a loose index scan: a few descents for each lane, however many jobs it holds. A lane with
-- a claim holds jobs, so the scan ends before it and goes on behind it. At its beginning there may
-- be a dead entry of each job that is done, and all would be read before the first job that waits.
-- The front lane of a lane with a claim is listed, too, although it may be empty, and the lane of a
-- front lane with a claim. Otherwise all dead entries of an empty lane would be read.
-- in:    only_queues: null: all queues
-- plan:  jobs_due_idx. Upper bounds are on one column: a comparison of rows ends a scan on
--        Postgres 18 only
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
declare
    before constant int := -32769;  -- any priority, and any lane
    beyond constant int := 32768;
    few constant int := 32;         -- MOST_FRONTS of a worker
begin
    return query
    with recursive
    every_claimed as materialized (
        select c.queue, c.priority::int, c.lane::int from redrive.claimed_lanes_v1() c
        where only_queues is null or c.queue = any (only_queues)),
    claimed as materialized (
        select c.queue, c.priority, c.lane
        from (select * from every_claimed
              union
              (select e.queue, e.priority, ~e.lane from every_claimed e limit few)) c
        where (c.queue, c.priority, c.lane) > (after_queue, after_priority, after_lane)),
    known as materialized (
        select o.queue from unnest(only_queues) as o(queue)
        union
        select c.queue from claimed c
        union
        (select j.queue from redrive.jobs j where j.queue >= after_queue and only_queues is null
         order by j.queue desc, j.priority desc, j.lane desc limit 1)),
    -- A scan goes from one of these stops to the next one.
    stops as (
        select after_queue as queue, after_priority as priority, after_lane as lane,
               false as is_claimed
        union all
        select q.queue, edge, edge, false from known q, unnest(array[before, beyond]) as e(edge)
        union
        select c.queue, c.priority, before, false from claimed c
        union all
        select c.queue, c.priority, c.lane, true from claimed c),
    scans as (
        select p.*, lag(p.queue) over following as from_queue,
               lag(p.priority) over following as from_priority,
               lag(p.lane) over following as from_lane
        from stops p
        where (p.queue, p.priority, p.lane) >= (after_queue, after_priority, after_lane)
        window following as (partition by case when only_queues is not null then p.queue end
                             order by p.queue, p.priority, p.lane))
    select l.queue, l.priority::smallint, l.lane::smallint
    from (select s.* from scans s where s.from_queue is not null
          order by s.queue, s.priority, s.lane) s,
    lateral (
        with recursive found as (
            select s.from_queue as queue, s.from_priority as priority, s.from_lane as lane
            union all
            select n.queue, n.priority, n.lane
            from found f,
            lateral (select f.queue = s.queue as in_queue,
                            f.queue = s.queue and f.priority = s.priority as in_priority) at,
            lateral (
                (select j.queue, j.priority::int, j.lane::int from redrive.jobs j
                 where at.in_priority
                   and j.queue = f.queue and j.priority = f.priority and j.lane > f.lane
                   and j.lane < s.lane
                 order by j.lane limit 1)
                union all
                (select j.queue, j.priority::int, j.lane::int from redrive.jobs j
                 where not at.in_priority
                   and j.queue = f.queue and (j.priority, j.lane) > (f.priority, f.lane)
                   and j.priority < case when at.in_queue then s.priority else beyond end
                 order by j.priority, j.lane limit 1)
                union all
                (select j.queue, j.priority::int, j.lane::int from redrive.jobs j
                 where j.queue > f.queue and j.queue < s.queue
                 order by j.queue, j.priority, j.lane limit 1)
                limit 1) n)
        (select f.queue, f.priority, f.lane from found f offset 1)
        union all
        select s.queue, s.priority, s.lane where s.is_claimed) l
    limit at_most;
end
$$;

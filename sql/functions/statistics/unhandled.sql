-- unhandled: list due jobs of a kind for which no live worker of their queue has a handler.
-- It also lists what these workers handle. A queue without a worker is another problem.
-- out:   jobs: computed from the counters. If few jobs of the queue are due, they are counted
--        instead, which excludes later ones. If more than `cap` are due, that would cost too much
-- plan:  jobs_due_idx: at most `cap` rows of the lanes of each such queue, and a million in all; none
--        if all kinds are handled
create or replace function redrive.unhandled_v1()
returns table (queue text, kind text, jobs bigint, handled text[])
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    most constant int := 10000;   -- kinds of a queue to look at: those with the most jobs
    cap constant int := 1000;
begin
    return query
    with alive as materialized (
        select distinct w.kinds, w.queues from redrive.workers w
        where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)),
    waiting as (
        select t.queue, t.kind, sum(case when event = 'claimed' then -n else n end)::bigint as n
        from redrive.totals t
        where event in ('enqueued', 'redriven', 'retried', 'released', 'rescued', 'claimed')
        group by t.queue, t.kind),
    unhandled as materialized (
        select w.queue, w.kind, w.n from waiting w
        where w.n > 0
          and exists (select from alive a where a.queues is null or w.queue = any (a.queues))
          and not exists (select from alive a
                          where (a.queues is null or w.queue = any (a.queues))
                            and redrive.handles_v1(a.kinds, w.kind))
        order by w.n desc limit most),
    places as materialized (
        select l.queue, array_agg(l.priority) as priorities, array_agg(l.lane) as lanes
        from redrive.next_lanes_v1(
            array(select distinct u.queue from unhandled u), '', 0, 0, 2147483647) l
        group by l.queue),
    few as materialized (  -- jobs to read of each queue
        select least(cap, 1000 * cap / greatest(count(*), 1)) as n from places),
    -- Across the queue's lanes, each in its own order. It matters whether all due jobs are read,
    -- and not which of them.
    due as (
        select p.queue, d.kind, count(*) as n
        from places p, lateral (
            select j.kind
            from unnest(p.priorities, p.lanes) as l(priority, lane), lateral (
                select j.kind from redrive.jobs j
                where j.queue = p.queue and j.priority = l.priority and j.lane = l.lane
                  and j.run_at <= now()
                order by j.run_at limit (select f.n from few f)) j
            limit (select f.n from few f)) d
        group by p.queue, d.kind),
    -- Not joined: a join of many queues may be planned for few, and then be quadratic.
    each as (
        select e.queue, e.kind, sum(e.n) as n, sum(e.due) as due
        from (select u.queue, u.kind, u.n, 0 as due from unhandled u
              union all
              select d.queue, d.kind, null, d.n from due d) e
        group by e.queue, e.kind),
    judged as (
        select e.queue, e.kind,
               case when e.n is null then 0
                    when sum(e.due) over (partition by e.queue) >= (select f.n from few f) then e.n
                    else e.due end::bigint as jobs
        from each e)
    select u.queue, u.kind, u.jobs, array(
        select distinct k from alive a, unnest(a.kinds) k
        where a.queues is null or u.queue = any (a.queues) order by k)
    from judged u
    where u.jobs > 0
    order by u.jobs desc, u.queue, u.kind;
end
$$;

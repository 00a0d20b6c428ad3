-- unhandled: list due jobs of a kind for which no live worker of their queue has a handler.
-- It also lists what these workers handle. A queue without a worker is another problem.
-- out:   jobs: computed from the counters. If few jobs of the queue are due, they are counted
--        instead, which excludes later ones. If more than `cap` are due, that would cost too much
-- plan:  jobs_due_idx: at most `cap` rows of the lanes of such queues, none if all kinds are
--        handled
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
    cap constant int := 1000;
begin
    return query
    with alive as materialized (
        select w.kinds, w.queues from redrive.workers w
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
                            and redrive.handles_v1(a.kinds, w.kind))),
    served as materialized (
        select u.queue, array(
            select distinct k from alive a, unnest(a.kinds) k
            where a.queues is null or u.queue = any (a.queues) order by k) as handled
        from unhandled u group by u.queue),
    places as materialized (
        select l.queue, l.priority, l.lane from redrive.next_lanes_v1(
            array(select s.queue from served s), '', 0, 0, 2147483647) l),
    -- Across the queue's lanes, each in its own order. It matters whether all due jobs are read,
    -- and not which of them.
    due as materialized (
        select s.queue, d.kind, count(*) as n, sum(count(*)) over (partition by s.queue) as seen
        from served s, lateral (
            select j.kind
            from places l, lateral (
                select j.kind from redrive.jobs j
                where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
                  and j.run_at <= now()
                order by j.run_at limit cap) j
            where l.queue = s.queue
            limit cap) d
        group by s.queue, d.kind)
    select u.queue, u.kind, f.jobs, s.handled
    from unhandled u join served s on s.queue = u.queue, lateral (
        select case when exists (select from due d where d.queue = u.queue and d.seen >= cap)
                    then u.n
                    else (select d.n from due d where d.queue = u.queue and d.kind = u.kind)
                    end as jobs) f
    where f.jobs > 0
    order by f.jobs desc, u.queue, u.kind;
end
$$;

-- standing: list the queues that stand still.
-- Such a queue has a due job, and a live worker that handles that job has a free slot. For
-- `patience`, no job of the queue was claimed or has ended.
-- out:   seconds: for how long; workers: how many have a free slot
-- locks: as due_v1
-- plan:  due_v1 once for each such worker
create or replace function redrive.standing_v1(patience interval)
returns table (queue text, seconds float8, workers int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with free as materialized (
        select w.queues, w.kinds, w.started_at from redrive.workers w
        where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl) and not w.is_closed
          and not coalesce((w.progress ->> 'draining')::boolean, false)
          and coalesce((w.progress ->> 'slots')::int, 0) > w.inflight),
    waiting as (
        select d.queue, greatest(min(d.since), min(f.started_at)) as since, count(*)::int as workers
        from free f, lateral redrive.due_v1(f.queues, f.kinds) d
        group by d.queue),
    -- unfolded counts are seconds old, or else the chore `fold` is overdue
    moved as (
        select w.queue, greatest(
                   (select max(t.at) from redrive.tallies t
                    where t.queue = w.queue and t.event not in ('enqueued', 'redriven')),
                   (select clock_timestamp() where exists (
                        select from redrive.deltas t
                        where t.queue = w.queue and t.event not in ('enqueued', 'redriven'))))
               as at
        from waiting w)
    select w.queue, s.seconds, w.workers
    from waiting w join moved m on m.queue = w.queue,
    lateral (select extract(epoch from clock_timestamp() - greatest(w.since, m.at))::float8
                    as seconds) s
    where s.seconds >= extract(epoch from patience)
    order by s.seconds desc, w.queue
$$;

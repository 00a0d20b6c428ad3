-- fold_hours: add up the minutes of hours that are over.
-- in:    since, until: the hours that begin in this time
-- locks: none, because fold_series, which calls this, holds the row of its chore
-- plan:  series_pkey, queue_series_pkey
create or replace function redrive.fold_hours_v1(since timestamptz, until timestamptz) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.series s
    where s.span = 60 and s.at >= fold_hours_v1.since and s.at < fold_hours_v1.until;
    insert into redrive.series (span, at, queue, kind, enqueued, completed, failed, retried, died,
                                redriven, duration, wait)
    select 60, r.at, coalesce(r.queue, ''), coalesce(r.kind, ''), r.enqueued, r.completed, r.failed, r.retried, r.died,
           r.redriven, r.duration, r.wait
    from (values (true, true), (true, false), (false, true), (false, false)) b(by_queue, by_kind)
    cross join lateral redrive.read_series_v1(
        1, fold_hours_v1.since, fold_hours_v1.until, interval '1 hour', null, null, b.by_queue,
        b.by_kind) r;
    delete from redrive.queue_series s
    where s.span = 60 and s.at >= fold_hours_v1.since and s.at < fold_hours_v1.until;
    insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)
    select 60, date_bin(interval '1 hour', s.at, timestamptz '2000-01-01 00:00:00+00'), s.queue,
           sum(s.minutes), max(s.backlog), max(s.running), min(s.workers)
    from redrive.queue_series s
    where s.span = 1 and s.at >= fold_hours_v1.since and s.at < fold_hours_v1.until
    group by 2, 3;
$$;

-- read_queue_series: read what queues held, by step of time.
-- in:    span, since, until, step: as in read_series
--        of_queue: only this one; '': all together; null: each
-- out:   backlog, running: the most in a step; workers: the fewest
--        minutes: how many the counts of the step cover
-- plan:  queue_series_pkey
create or replace function redrive.read_queue_series_v1(
    span int, since timestamptz, until timestamptz, step interval, of_queue text)
returns table (at timestamptz, queue text, minutes bigint, backlog bigint, running bigint,
               workers int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_indexscan = off
set jit = off
as $$
    with read as (
        select r.* from redrive.queue_series r
        where r.span = read_queue_series_v1.span and r.at >= read_queue_series_v1.since
          and r.at < read_queue_series_v1.until
        union all
        select r.* from redrive.queue_series r
        where read_queue_series_v1.span = 60 and r.span = 1 and r.at < read_queue_series_v1.until
          and r.at >= (select greatest(read_queue_series_v1.since,
                                       redrive.series_hour_v1(c.place))
                       from redrive.chores c where c.name = 'series'))
    select date_bin(read_queue_series_v1.step, r.at, timestamptz '2000-01-01 00:00:00+00'),
           r.queue, sum(r.minutes), max(r.backlog), max(r.running), min(r.workers)
    from read r
    where case when of_queue is null then r.queue <> '' else r.queue = of_queue end
    group by 1, 2
    order by 1, 2
$$;

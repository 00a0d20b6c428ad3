-- read_series: add up counts and times by step of time.
-- in:    span: 1 reads minutes. 60 reads hours, and the minutes of an hour that is not over
--        since, until: rows that begin in this time
--        step: of the rows that are returned, counted from midnight UTC
--        of_queue, of_kind: only these; null: all
--        by_queue, by_kind: a row for each; false: the names are null, and rows are read that
--        hold the sums of all
-- out:   duration, wait: attempts in each bucket; null: none
-- plan:  series_pkey, as a bitmap, so that it reads each page once. The names are compared in the
--        index, as ranges, because the same plan is for one name, for each name and for the sums
create or replace function redrive.read_series_v1(
    span int, since timestamptz, until timestamptz, step interval, of_queue text, of_kind text,
    by_queue boolean, by_kind boolean)
returns table (at timestamptz, queue text, kind text, enqueued bigint, completed bigint,
               failed bigint, retried bigint, died bigint, redriven bigint,
               duration bigint[], wait bigint[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_indexscan = off
set work_mem = '32MB'
set jit = off
as $$
    with read as (
        select r.* from redrive.series r
        where r.span = read_series_v1.span and r.at >= read_series_v1.since
          and r.at < read_series_v1.until
        union all
        select r.* from redrive.series r
        where read_series_v1.span = 60 and r.span = 1 and r.at < read_series_v1.until
          and r.at >= (select greatest(read_series_v1.since, redrive.series_hour_v1(c.place))
                       from redrive.chores c where c.name = 'series'))
    select date_bin(read_series_v1.step, r.at, timestamptz '2000-01-01 00:00:00+00'),
           case when by_queue then r.queue end,
           case when by_kind then r.kind end,
           sum(r.enqueued), sum(r.completed), sum(r.failed), sum(r.retried), sum(r.died),
           sum(r.redriven),
           case when count(r.duration) > 0 then array[
               sum(r.duration[1]), sum(r.duration[2]), sum(r.duration[3]), sum(r.duration[4]),
               sum(r.duration[5]), sum(r.duration[6]), sum(r.duration[7]), sum(r.duration[8]),
               sum(r.duration[9]), sum(r.duration[10]), sum(r.duration[11]), sum(r.duration[12]),
               sum(r.duration[13]), sum(r.duration[14]), sum(r.duration[15]), sum(r.duration[16]),
               sum(r.duration[17])] end,
           case when count(r.wait) > 0 then array[
               sum(r.wait[1]), sum(r.wait[2]), sum(r.wait[3]), sum(r.wait[4]), sum(r.wait[5]),
               sum(r.wait[6]), sum(r.wait[7]), sum(r.wait[8]), sum(r.wait[9]), sum(r.wait[10]),
               sum(r.wait[11]), sum(r.wait[12]), sum(r.wait[13]), sum(r.wait[14]),
               sum(r.wait[15]), sum(r.wait[16]), sum(r.wait[17]), sum(r.wait[18])] end
    from read r
    where r.queue >= coalesce(of_queue, case when by_queue then 'a' else '' end)
      and r.queue <= coalesce(of_queue, case when by_queue then repeat('z', 64) else '' end)
      and r.kind >= coalesce(of_kind, case when by_kind then 'a' else '' end)
      and r.kind <= coalesce(of_kind, case when by_kind then repeat('z', 64) else '' end)
    group by 1, 2, 3
    order by 1, 2, 3
$$;

-- forget_series: delete minutes after 26 hours, hours and marks after 35 days.
-- in:    batch: how many rows of each at most
-- locks: rows, skip locked
-- plan:  series_pkey, queue_series_pkey, marks_at_idx
create or replace function redrive.forget_series_v1(batch int) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with kept (span, since) as (
        values (1, clock_timestamp() - interval '26 hours'),
               (60, clock_timestamp() - interval '35 days'))
    delete from redrive.series s where s.ctid = any (array(
        select o.ctid from kept k cross join lateral (
            select r.ctid from redrive.series r
            where r.span = k.span and r.at < k.since limit batch for update skip locked) o));
    with kept (span, since) as (
        values (1, clock_timestamp() - interval '26 hours'),
               (60, clock_timestamp() - interval '35 days'))
    delete from redrive.queue_series s where s.ctid = any (array(
        select o.ctid from kept k cross join lateral (
            select r.ctid from redrive.queue_series r
            where r.span = k.span and r.at < k.since limit batch for update skip locked) o));
    delete from redrive.marks m where m.id = any (array(
        select o.id from redrive.marks o where o.at < clock_timestamp() - interval '35 days'
        order by o.at limit batch for update skip locked));
$$;

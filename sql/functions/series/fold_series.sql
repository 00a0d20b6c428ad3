-- fold_series: record the minute that has just ended, and each hour when it is over.
-- A minute is recorded five seconds after its end, because workers send their times first.
-- out:   whether this call has recorded a minute
-- locks: as record_minute
create or replace function redrive.fold_series_v1() returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select redrive.record_minute_v1(
        floor(extract(epoch from clock_timestamp() - interval '65 s') / 60)::bigint)
$$;

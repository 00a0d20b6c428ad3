-- tend_history: call turn_history with the date of the server's clock.
create or replace function redrive.tend_history_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select redrive.turn_history_v1((clock_timestamp() at time zone 'UTC')::date)
$$;

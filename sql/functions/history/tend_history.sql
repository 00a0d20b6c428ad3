-- tend_history: turn the history, by the server's clock and nobody else's.
create or replace function redrive.tend_history_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select redrive.turn_history_v1((clock_timestamp() at time zone 'UTC')::date)
$$;

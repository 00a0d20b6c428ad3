-- first_time: return true if the work that this key stands for has not been done.
-- True takes the key in the caller's transaction: it stays taken if that commits, and is free again
-- if that rolls back. A second caller waits for the end of the first one. Handlers may call it and
-- producers may not: a producer could take the keys of others, and their work would never be done.
create or replace function redrive.first_time_v1(key text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with taken as (
        insert into redrive.effects (key) values (first_time_v1.key)
        on conflict do nothing
        returning 1)
    select exists (select from taken)
$$;

-- first_time: whether nobody has done what this key stands for. True claims it, in the caller's
-- transaction: it is taken when that commits and free again when it rolls back. A second caller
-- waits for the first one's end. For handlers, and so not for producers: one who took the keys of
-- others would keep their work from being done.
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

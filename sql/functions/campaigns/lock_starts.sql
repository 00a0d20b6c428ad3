-- lock_starts: let starts that look for other campaigns first happen one after the other.
-- locks: a table that exists for this lock, until the end of the transaction; it costs no
--        transaction id
create or replace function redrive.lock_starts_v1() returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    lock table redrive.start_lock in exclusive mode
$$;

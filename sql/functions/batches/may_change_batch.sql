-- may_change_batch: return true if the caller may add jobs to a batch, or close it.
-- The ids of batches can be guessed. Without this check, a producer could close the batch of another
-- one too early, or keep it from ever ending.
-- in:    opened_by: the login that opened the batch; null: it is not known
create or replace function redrive.may_change_batch_v1(opened_by text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select opened_by is null or opened_by = session_user
        or exists (select from pg_roles r
                   where r.rolname in ('redrive_worker', 'redrive_operator')
                     and pg_has_role(session_user, r.oid, 'member'))
$$;

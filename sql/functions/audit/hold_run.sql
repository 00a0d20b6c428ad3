-- hold_run: let only one run of a kind work at a time, until the caller's transaction ends.
-- out:   true if the caller holds it now
-- locks: a table that exists for this lock, nowait; the lock costs no transaction id
create or replace function redrive.hold_run_v1(name text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    case name
    when 'purge' then lock table redrive.purge_lock in exclusive mode nowait;
    when 'redrive' then lock table redrive.redrive_lock in exclusive mode nowait;
    when 'reencrypt' then lock table redrive.reencrypt_lock in exclusive mode nowait;
    else
        raise exception using errcode = 'RD001',
            message = 'name: must be purge, redrive or reencrypt';
    end case;
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- end_run: close a run, and write to the audit log how many rows it changed.
create or replace function redrive.end_run_v1(run bigint) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with ended as (
        delete from redrive.runs r where r.id = run and r.db_user = session_user
        returning r.id, r.action, r.actor, r.why, r.n)
    insert into redrive.audit (actor, action, why, n, detail)
    select e.actor, 'end ' || e.action, e.why, e.n, jsonb_build_object('line', e.id) from ended e
$$;

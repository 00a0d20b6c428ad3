-- record_audit: a line of the audit log for what was done outside these functions.
create or replace function redrive.record_audit_v1(
    actor text, action text, why text, n int, detail jsonb)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.audit (actor, action, why, n, detail) values (actor, action, why, n, detail)
$$;

-- set_retention: set how long something is kept. Audited.
-- locks: the end of the audit log first: two transactions that each set several periods wait in
--        line, and not in a circle
create or replace function redrive.set_retention_v1(
    what text, keep interval, actor text, why text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'retention', why, 1, jsonb_build_object(
        'what', set_retention_v1.what, 'keep', set_retention_v1.keep));
    update redrive.retention r set keep = set_retention_v1.keep
    where r.what = set_retention_v1.what;
$$;

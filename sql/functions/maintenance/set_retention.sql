-- set_retention: set how long something is kept. Audited.
-- Only an owner of the schema can shorten the retention of the audit log: an operator could otherwise
-- let the record of an act expire.
-- errors: RD001 'field: rule'
-- locks: the end of the audit log first: two transactions that each set several periods wait in
--        line, and not in a circle
create or replace function redrive.set_retention_v1(
    what text, keep interval, actor text, why text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    if keep > interval '100 years' then
        raise exception using errcode = 'RD001', message = 'keep: must be at most 100 years';
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'retention', why, 1, jsonb_build_object(
        'what', set_retention_v1.what, 'keep', set_retention_v1.keep));
    update redrive.retention r set keep = set_retention_v1.keep
    where r.what = set_retention_v1.what
      and (r.what <> 'audit' or r.keep <= set_retention_v1.keep
           or pg_has_role(session_user, 'redrive_owner', 'usage'));
    if not found then
        raise exception using errcode = 'RD001', message = coalesce(
            (select format('keep: only a member of redrive_owner may keep the audit log for less'
                           ' than %s', r.keep)
             from redrive.retention r where r.what = set_retention_v1.what),
            'what: must be audit, campaigns, groups, keys or names');
    end if;
end
$$;

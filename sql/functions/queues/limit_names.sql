-- limit_names: set how many queues or kinds may be in use. Audited.
-- Names that are in use stay in use.
-- errors: RD001 'what: rule'
-- locks: the end of the audit log first, as set_retention.sql
create or replace function redrive.limit_names_v1(
    what text, at_most int, actor text, why text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'limit names', why, 1, jsonb_build_object(
        'what', limit_names_v1.what, 'at_most', limit_names_v1.at_most));
    update redrive.name_limits l set at_most = limit_names_v1.at_most
    where l.what = limit_names_v1.what;
    if not found then
        raise exception using errcode = 'RD001', message = 'what: must be queues or kinds';
    end if;
end
$$;

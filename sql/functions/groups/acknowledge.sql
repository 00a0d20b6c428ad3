-- acknowledge: say that the actor works on groups, or that nobody does. Audited.
-- out:   the groups that have open dead letters or failing jobs
-- locks: groups, then the end of the audit log, as mute.sql
create or replace function redrive.acknowledge_v1(
    names text[], is_acknowledged boolean, actor text, why text)
returns setof text
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with done as materialized (
        select name from redrive.acknowledged_v1(
            names, case when is_acknowledged then actor end, why) as a(name)),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, case when is_acknowledged then 'acknowledge' else 'unacknowledge' end, why,
               count(*), jsonb_build_object('groups', jsonb_agg(d.name))
        from done d having count(*) > 0)
    select d.name from done d
$$;

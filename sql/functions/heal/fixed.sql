-- fixed: list resolved groups whose failing jobs were not retried since, with the versions that run.
-- Groups are left out that are muted, that have regressed, or that two people decide about.
-- out:   versions: of the live workers of the group's kind
-- plan:  groups_fixed_idx, jobs_failing_idx
create or replace function redrive.fixed_v1()
returns table (fingerprint text, fixed_in text[], versions text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select g.fingerprint, g.fixed_in,
           array(select distinct w.version from redrive.workers w
                 where w.lost_at is null and redrive.handles_v1(w.kinds, g.kind) order by 1)
    from redrive.groups g
    where g.fixed_in is not null and g.regressed_at is null
      and redrive.is_failing_v1(g.fingerprint)
      and (g.muted_until is null or g.muted_until < statement_timestamp())
      and not exists (select from redrive.approvals a where a.kind = g.kind)
      and not exists (select from redrive.campaigns c
                      where c.filter ? 'failing' and c.filter ->> 'group' = g.fingerprint
                        and c.planned_by = 'heal' and c.created_at > g.resolved_at)
    order by g.fingerprint
$$;

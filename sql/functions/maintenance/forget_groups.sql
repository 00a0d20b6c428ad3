-- forget_groups: delete groups past their retention without dead letters and failing jobs, unless
-- they are muted or resolved: a resolved group must be known when it fails again.
-- Deltas that are not folded yet make such a group again.
-- plan:  groups_closed_idx; dead_letters_group_idx and jobs_failing_idx for each
create or replace function redrive.forget_groups_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with pick as materialized (
        select g.fingerprint from redrive.groups g
        where g.open = 0 and g.last_seen < clock_timestamp() - older_than
          and (g.muted_until is null or g.muted_until < clock_timestamp())
          and (g.fixed_in is null or g.regressed_at is not null)
          and not exists (select from redrive.held_groups h where h.fingerprint = g.fingerprint)
          and not exists (select from redrive.dead_letters d where d.fingerprint = g.fingerprint)
          and not exists (select from redrive.jobs j
                          where j.fingerprint = g.fingerprint and j.failed_at is not null)
        order by g.last_seen limit batch for update skip locked),
    gone as (
        delete from redrive.groups g using pick p where g.fingerprint = p.fingerprint returning 1)
    select count(*)::int from gone
$$;

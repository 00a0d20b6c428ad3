-- resolve: record the versions that no longer fail for a group's cause; null takes that back.
-- Failures that this call does not see count as later ones. So each delta is counted once: a delta
-- that is not folded yet is subtracted here, and fold_groups adds it.
-- in:    fixed_in: versions with the fix; null: none is known
--        seen: the versions in which the caller knows that the group failed
-- out:   done | missing: there is no such group, or nothing to take back
--        | changed: it has failed in a version that is not in seen; read it again
-- locks: the group's row; it may wait for a fold of up to a second
create or replace function redrive.resolve_v1(
    fingerprint text, fixed_in text[], seen text[], actor text, why text)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    was redrive.groups;
begin
    -- A group that has not been folded yet gets its row here, and its figures when it is folded.
    insert into redrive.groups (
        fingerprint, kind, category, error_class, message, sample, total, open, first_seen,
        last_seen)
    select d.fingerprint, d.kind, d.category, d.error_class, d.message, d.sample, 0, 0, d.at, d.at
    from redrive.group_deltas d where d.fingerprint = resolve_v1.fingerprint
    order by d.at limit 1
    on conflict do nothing;
    -- A statement of its own: the next ones see what a fold has committed meanwhile.
    select g.* into was from redrive.groups g
    where g.fingerprint = resolve_v1.fingerprint for no key update;
    if not found or (resolve_v1.fixed_in is null and was.fixed_in is null) then
        return 'missing';
    end if;
    if exists (select from jsonb_object_keys(was.versions) as v(version)
               where v.version <> all (seen)
               union all
               select from redrive.group_deltas d
               where d.fingerprint = was.fingerprint and d.added + d.failed > 0
                 and d.version <> all (seen || ''::text)) then
        return 'changed';
    end if;
    update redrive.groups g
    set fixed_in = resolve_v1.fixed_in,
        resolved_at = case when resolve_v1.fixed_in is not null then clock_timestamp() end,
        resolved_by = case when resolve_v1.fixed_in is not null then actor end,
        resolved_why = case when resolve_v1.fixed_in is not null then why end,
        since = (select coalesce(jsonb_object_agg(b.version, -b.n), '{}')
                 from (select d.version, sum(d.added + d.failed) as n from redrive.group_deltas d
                       where d.fingerprint = was.fingerprint and d.added + d.failed > 0
                       group by d.version) b),
        regressed_in = null, regressed_at = null, is_unjudged = false
    where g.fingerprint = was.fingerprint;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, case when resolve_v1.fixed_in is null then 'unresolve' else 'resolve' end, why,
            1, jsonb_strip_nulls(jsonb_build_object(
                'group', was.fingerprint, 'in', to_jsonb(resolve_v1.fixed_in),
                'was_in', to_jsonb(was.fixed_in), 'regressed_in', was.regressed_in)));
    return 'done';
end
$$;

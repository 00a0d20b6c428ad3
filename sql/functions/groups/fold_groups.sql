-- fold_groups: add the deltas to the groups.
create or replace function redrive.fold_groups_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with moved as (
        delete from redrive.group_deltas
        returning fingerprint, kind, category, error_class, message, sample, version, added,
                  opened, at),
    seen as (
        select v.fingerprint, jsonb_object_agg(v.version, v.at) as versions
        from (select fingerprint, version, min(at) as at from moved where version <> ''
              group by fingerprint, version) v
        group by v.fingerprint),
    summed as (
        select m.fingerprint, min(m.kind) as kind, min(m.category) as category,
               min(m.error_class) as error_class, min(m.message) as message,
               max(m.sample) as sample, sum(m.added) as added, sum(m.opened) as opened,
               min(m.at) as first_seen, max(m.at) filter (where m.added > 0) as last_seen
        from moved m group by m.fingerprint),
    added as (
        insert into redrive.groups as g (
            fingerprint, kind, category, error_class, message, sample, total, open, first_seen,
            last_seen, versions)
        select s.fingerprint, s.kind, s.category, s.error_class, s.message, s.sample, s.added,
               s.opened, s.first_seen, coalesce(s.last_seen, s.first_seen),
               coalesce(v.versions, '{}')
        from summed s left join seen v on v.fingerprint = s.fingerprint
        order by s.fingerprint
        on conflict (fingerprint) do update
        set total = g.total + excluded.total, open = g.open + excluded.open,
            sample = case when excluded.total > 0 then excluded.sample else g.sample end,
            last_seen = case when excluded.total > 0
                             then greatest(g.last_seen, excluded.last_seen) else g.last_seen end,
            versions = excluded.versions || g.versions
        returning 1)
    select count(*)::int from moved
$$;

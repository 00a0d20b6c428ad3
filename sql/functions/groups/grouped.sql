-- grouped: show each group as it stands, with the deltas that are not folded yet.
create or replace view redrive.grouped as
    select g.fingerprint, g.kind, g.category, g.error_class, g.message, g.sample, g.total, g.open,
           g.first_seen, g.last_seen,
           case when g.fresh = '{}' then g.versions else (
               select jsonb_object_agg(e.version, e.at)
               from (select b.key as version, min(b.value::timestamptz) as at
                     from (select key, value from jsonb_each_text(g.versions)
                           union all
                           select key, value from jsonb_each_text(g.fresh)) b
                     group by b.key) e) end as versions,
           g.muted_until, g.muted_by, g.muted_why,
           g.fixed_in, g.resolved_at, g.resolved_by, g.resolved_why, g.regressed_in, g.regressed_at,
           -- failures of each version since it was resolved
           case when g.fixed_in is null then '{}' else (
               select coalesce(jsonb_object_agg(e.version, e.n), '{}')
               from (select b.version, sum(b.n) as n
                     from (select key as version, value::bigint as n
                           from jsonb_each_text(g.since)
                           union all
                           select t.value ->> 0, (t.value ->> 1)::bigint
                           from jsonb_array_elements(g.added) t) b
                     group by b.version having sum(b.n) > 0) e) end as since,
           g.failed
    from (
        select s.fingerprint, min(s.kind) as kind, min(s.category) as category,
               min(s.error_class) as error_class,
               (array_agg(s.message order by s.folded desc))[1] as message,
               coalesce(max(s.sample) filter (where s.total > 0), max(s.sample)) as sample,
               sum(s.total)::bigint as total, sum(s.open)::bigint as open,
               sum(s.failed)::bigint as failed,
               min(s.first_seen) as first_seen, max(s.last_seen) as last_seen,
               -- for each version the earliest time comes last and stays
               coalesce(jsonb_object_agg(s.version, s.first_seen order by s.first_seen desc)
                        filter (where s.version <> ''), '{}') as fresh,
               coalesce(min(s.versions::text) filter (where s.folded), '{}')::jsonb as versions,
               max(s.muted_until) as muted_until, max(s.muted_by) as muted_by,
               max(s.muted_why) as muted_why,
               max(s.fixed_in) as fixed_in, max(s.resolved_at) as resolved_at,
               max(s.resolved_by) as resolved_by, max(s.resolved_why) as resolved_why,
               max(s.regressed_in) as regressed_in, max(s.regressed_at) as regressed_at,
               coalesce(min(s.since::text) filter (where s.folded), '{}')::jsonb as since,
               coalesce(jsonb_agg(jsonb_build_array(s.version, s.total + s.failed))
                        filter (where s.version is not null and not s.folded), '[]') as added
        from (select fingerprint, kind, category, error_class, message, sample, total, open, failed,
                     first_seen, last_seen, '' as version, versions, muted_until, muted_by,
                     muted_why, fixed_in, resolved_at, resolved_by, resolved_why, regressed_in,
                     regressed_at, since, true as folded
              from redrive.groups
              union all
              select fingerprint, kind, category, error_class, message, sample, added, opened,
                     failed, at, case when added + failed > 0 then at end,
                     case when added + failed > 0 then version end,
                     '{}', null, null, null, null, null, null, null, null, null, '{}', false
              from redrive.group_deltas) s
        group by s.fingerprint) g;

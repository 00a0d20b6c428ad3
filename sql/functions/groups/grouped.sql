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
           g.muted_until, g.muted_by, g.muted_why
    from (
        select s.fingerprint, min(s.kind) as kind, min(s.category) as category,
               min(s.error_class) as error_class,
               (array_agg(s.message order by s.folded desc))[1] as message,
               max(s.sample) as sample,
               sum(s.total)::bigint as total, sum(s.open)::bigint as open,
               min(s.first_seen) as first_seen, max(s.last_seen) as last_seen,
               -- for each version the earliest time comes last and stays
               coalesce(jsonb_object_agg(s.version, s.first_seen order by s.first_seen desc)
                        filter (where s.version <> ''), '{}') as fresh,
               coalesce(min(s.versions::text) filter (where s.folded), '{}')::jsonb as versions,
               max(s.muted_until) as muted_until, max(s.muted_by) as muted_by,
               max(s.muted_why) as muted_why
        from (select fingerprint, kind, category, error_class, message, sample, total, open,
                     first_seen, last_seen, '' as version, versions, muted_until, muted_by,
                     muted_why, true as folded
              from redrive.groups
              union all
              select fingerprint, kind, category, error_class, message, sample, added, opened, at,
                     case when added > 0 then at end, case when added > 0 then version end,
                     '{}', null, null, null, false
              from redrive.group_deltas) s
        group by s.fingerprint) g;

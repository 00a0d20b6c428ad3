-- count_groups: every insert into the dead letters, and every one that leaves or enters the state open, as deltas.
-- Statement triggers, so that no function that buries, redrives, dismisses or purges can forget it.
create or replace function redrive.count_buried() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample, version, added, opened)
    select f.fingerprint, min(f.kind), min(f.category), min(f.error_class), min(f.message), max(f.id),
           coalesce(f.version, ''), count(*), count(*) filter (where f.state = 'open')
    from fresh f group by f.fingerprint, coalesce(f.version, '');
    return null;
end
$$;

create or replace function redrive.count_moved() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample, added, opened)
    select m.fingerprint, min(m.kind), min(m.category), min(m.error_class), min(m.message), max(m.id), 0, sum(m.n)
    from (select fingerprint, kind, category, error_class, message, id, -1 as n from gone where state = 'open'
          union all
          select fingerprint, kind, category, error_class, message, id, 1 from fresh where state = 'open') m
    group by m.fingerprint having sum(m.n) <> 0;
    return null;
end
$$;

create or replace function redrive.count_purged() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample, added, opened)
    select g.fingerprint, min(g.kind), min(g.category), min(g.error_class), min(g.message), max(g.id), 0, -count(*)
    from gone g where g.state = 'open' group by g.fingerprint;
    return null;
end
$$;

create or replace trigger dead_letters_buried after insert on redrive.dead_letters
    referencing new table as fresh for each statement execute function redrive.count_buried();
create or replace trigger dead_letters_moved after update on redrive.dead_letters
    referencing old table as gone new table as fresh for each statement execute function redrive.count_moved();
create or replace trigger dead_letters_purged after delete on redrive.dead_letters
    referencing old table as gone for each statement execute function redrive.count_purged();

-- fold_groups: add the deltas to the groups.
create or replace function redrive.fold_groups_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with moved as (
        delete from redrive.group_deltas
        returning fingerprint, kind, category, error_class, message, sample, version, added, opened, at),
    seen as (
        select v.fingerprint, jsonb_object_agg(v.version, v.at) as versions
        from (select fingerprint, version, min(at) as at from moved where version <> '' group by fingerprint, version) v
        group by v.fingerprint),
    summed as (
        select m.fingerprint, min(m.kind) as kind, min(m.category) as category, min(m.error_class) as error_class,
               min(m.message) as message, max(m.sample) as sample, sum(m.added) as added, sum(m.opened) as opened,
               min(m.at) as first_seen, max(m.at) filter (where m.added > 0) as last_seen
        from moved m group by m.fingerprint),
    added as (
        insert into redrive.groups as g (fingerprint, kind, category, error_class, message, sample, total, open,
                                         first_seen, last_seen, versions)
        select s.fingerprint, s.kind, s.category, s.error_class, s.message, s.sample, s.added, s.opened,
               s.first_seen, coalesce(s.last_seen, s.first_seen), coalesce(v.versions, '{}')
        from summed s left join seen v on v.fingerprint = s.fingerprint
        order by s.fingerprint
        on conflict (fingerprint) do update
        set total = g.total + excluded.total, open = g.open + excluded.open,
            sample = case when excluded.total > 0 then excluded.sample else g.sample end,
            last_seen = case when excluded.total > 0 then greatest(g.last_seen, excluded.last_seen) else g.last_seen end,
            versions = excluded.versions || g.versions
        returning 1)
    select count(*)::int from moved
$$;

-- grouped: every group as it stands, folded or not.
create or replace view redrive.grouped as
    select s.fingerprint, min(s.kind) as kind, min(s.category) as category, min(s.error_class) as error_class,
           (array_agg(s.message order by s.folded desc))[1] as message, max(s.sample) as sample,
           sum(s.total)::bigint as total, sum(s.open)::bigint as open,
           min(s.first_seen) as first_seen, max(s.last_seen) as last_seen,
           coalesce(jsonb_object_agg(s.version, s.first_seen order by s.first_seen desc) filter (where s.version <> ''),
                    '{}')                                              -- of one version, the earliest comes last and stays
               || coalesce(min(s.versions::text) filter (where s.folded), '{}')::jsonb as versions,
           max(s.muted_until) as muted_until, max(s.muted_by) as muted_by, max(s.muted_why) as muted_why
    from (select fingerprint, kind, category, error_class, message, sample, total, open, first_seen, last_seen,
                 '' as version, versions, muted_until, muted_by, muted_why, true as folded
          from redrive.groups
          union all
          select fingerprint, kind, category, error_class, message, sample, added, opened, at,
                 case when added > 0 then at end, case when added > 0 then version end, '{}', null, null, null, false
          from redrive.group_deltas) s
    group by s.fingerprint;

-- mute: leave a group out of bulk redrives until an instant; null takes that back.
create or replace function redrive.mute_v1(fingerprint text, until timestamptz, actor text, why text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select redrive.fold_groups_v1();
    with muted as (
        update redrive.groups g
        set muted_until = until,
            muted_by = case when until is not null then actor end,
            muted_why = case when until is not null then why end
        where g.fingerprint = mute_v1.fingerprint
        returning g.fingerprint),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, case when until is null then 'unmute' else 'mute' end, why, 1,
               jsonb_build_object('group', m.fingerprint, 'until', until)
        from muted m)
    select exists (select from muted)
$$;

-- fold_groups: add deltas to the groups, one step at a time, as fold does.
-- The rows of a table are in no order of time. So first and last times are compared, and not taken
-- from the latest step.
-- A group is counted as new with its first dead letter, unless somebody has resolved or muted it
-- before. Of a resolved group, it also counts the failures of each version, and a worker compares
-- these versions with the fix: see judge.
-- out:   moved: how many deltas were added; more: the end of the table has not been reached
-- locks: the chore's row, skip locked; then groups, ascending, skip locked. If an operator is
--        muting a group, its deltas stay until a later step. If mute is inserting the group's row,
--        this waits for 100 ms
-- plan:  a range of ctids; for a new group, dead_letters_pkey
create or replace function redrive.fold_groups_v1(out moved int, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    known text[];          -- the groups of these deltas
    free text[];           -- the groups that no other session has locked
    held text[];           -- the groups that another session has locked
    blocks constant int := 64;
    size constant bigint :=
        pg_relation_size('redrive.group_deltas') / current_setting('block_size')::int;
    start bigint;
begin
    moved := 0;
    more := false;
    select case when c.place < size then c.place else 0 end into start
    from redrive.chores c where c.name = 'fold_groups' for update skip locked;
    if not found then
        return;
    end if;
    known := array(
        select g.fingerprint from redrive.groups g
        where g.fingerprint = any (array(
            select distinct d.fingerprint from redrive.group_deltas d
            where d.ctid >= ('(' || start || ',0)')::tid
              and d.ctid < ('(' || start + blocks || ',0)')::tid)));
    free := array(select g.fingerprint from redrive.groups g where g.fingerprint = any (known)
                  order by g.fingerprint for no key update skip locked);
    held := array(select k.name from unnest(known) as k(name) where k.name <> all (free));
    with gone as (
        delete from redrive.group_deltas d
        where d.ctid >= ('(' || start || ',0)')::tid
          and d.ctid < ('(' || start + blocks || ',0)')::tid
          and d.fingerprint <> all (held)
        returning d.fingerprint, d.kind, d.category, d.error_class, d.message, d.sample, d.version,
                  d.added, d.opened, d.failed, d.at),
    seen as (
        select v.fingerprint, jsonb_object_agg(v.version, v.at) as versions
        from (select fingerprint, version, min(at) as at from gone where version <> ''
              group by fingerprint, version) v
        group by v.fingerprint),
    counts as (
        select fingerprint, version, sum(added + failed) as n from gone where added + failed > 0
        group by fingerprint, version),
    summed as (
        select m.fingerprint, min(m.kind) as kind, min(m.category) as category,
               min(m.error_class) as error_class, min(m.message) as message,
               coalesce(max(m.sample) filter (where m.added > 0), max(m.sample)) as sample,
               sum(m.added) as added, sum(m.opened) as opened, sum(m.failed) as failed,
               min(m.at) as first_seen,
               max(m.at) filter (where m.added + m.failed > 0) as last_seen
        from gone m group by m.fingerprint),
    added as (
        insert into redrive.groups as g (
            fingerprint, kind, category, error_class, message, sample, total, open, failed,
            first_seen, last_seen, versions)
        select s.fingerprint, s.kind, s.category, s.error_class, s.message, s.sample, s.added,
               s.opened, s.failed, s.first_seen, coalesce(s.last_seen, s.first_seen),
               coalesce(v.versions, '{}')
        from summed s left join seen v on v.fingerprint = s.fingerprint
        order by s.fingerprint
        on conflict (fingerprint) do update
        set total = g.total + excluded.total, open = g.open + excluded.open,
            failed = g.failed + excluded.failed,
            -- a dead letter, if the group has had one
            sample = case when (g.total > 0) = (excluded.total > 0)
                          then greatest(g.sample, excluded.sample)
                          when g.total > 0 then g.sample else excluded.sample end,
            first_seen = least(g.first_seen, excluded.first_seen),
            last_seen = case when excluded.total + excluded.failed > 0
                             then greatest(g.last_seen, excluded.last_seen) else g.last_seen end,
            versions = case when excluded.versions = '{}' then g.versions else (
                select jsonb_object_agg(e.version, e.at)
                from (select b.key as version, min(b.value::timestamptz) as at
                      from (select key, value from jsonb_each_text(g.versions)
                            union all
                            select key, value from jsonb_each_text(excluded.versions)) b
                      group by b.key) e) end,
            since = case when g.fixed_in is null then g.since else (
                select coalesce(jsonb_object_agg(e.version, e.n), '{}')
                from (select b.version, sum(b.n) as n
                      from (select key as version, value::bigint as n
                            from jsonb_each_text(g.since)
                            union all
                            select f.version, f.n from counts f
                            where f.fingerprint = g.fingerprint) b
                      group by b.version) e) end,
            is_unjudged = g.is_unjudged or (g.fixed_in is not null and g.regressed_at is null
                                            and excluded.total + excluded.failed > 0)
        returning g.fingerprint, g.sample, g.kind, g.total,
                  g.fixed_in is null and g.muted_until is null as is_unknown),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select n.queue, n.kind, 'new_group', count(*)
        from (select a.kind, redrive.queue_of_v1(a.sample) as queue
              from added a join summed s on s.fingerprint = a.fingerprint
              where a.is_unknown and s.added > 0 and a.total = s.added) n
        group by n.queue, n.kind)
    select count(*) into moved from gone;
    more := start + blocks < size;
    update redrive.chores c set place = case when more then start + blocks else 0 end
    where c.name = 'fold_groups' and (more or c.place > 0);
exception
    when lock_not_available then
        moved := 0;
        more := false;
end
$$;

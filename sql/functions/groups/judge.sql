-- judge: record that a resolved group regressed, or that its deaths are of versions without the
-- fix.
-- in:    resolved_at, since: as unjudged returned them; if they have changed, nothing is done, and
--        the group is still unjudged
--        regressed_in: the version with the fix that died; null: none did
-- out:   true if the group was judged
-- locks: the group's row, skip locked: if an operator is changing it, a later call judges it
-- plan:  groups_pkey, dead_letters_pkey
create or replace function redrive.judge_v1(
    fingerprint text, resolved_at timestamptz, since jsonb, regressed_in text)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with free as (
        select g.fingerprint from redrive.groups g
        where g.fingerprint = judge_v1.fingerprint and g.is_unjudged
          and g.resolved_at = judge_v1.resolved_at and g.since = judge_v1.since
        for no key update skip locked),
    judged as (
        update redrive.groups g
        set is_unjudged = false, regressed_in = judge_v1.regressed_in,
            regressed_at = case when judge_v1.regressed_in is not null then clock_timestamp() end
        from free f where g.fingerprint = f.fingerprint
        returning g.sample, g.kind),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select redrive.queue_of_v1(j.sample), j.kind, 'regressed', 1
        from judged j where judge_v1.regressed_in is not null)
    select exists (select from judged)
$$;

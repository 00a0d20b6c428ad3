-- mute: exclude a group from bulk redrives until a time; null ends that. Audited.
-- errors: RD001 'until: rule'
create or replace function redrive.mute_v1(
    fingerprint text, until timestamptz, actor text, why text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    is_there boolean;
begin
    if until not between clock_timestamp() and clock_timestamp() + interval '1 year' then
        raise exception using errcode = 'RD001',
            message = 'until: must lie in the future, at most a year from now';
    end if;
    -- A group that has not been folded yet gets its row here, and its figures when it is folded.
    insert into redrive.groups (
        fingerprint, kind, category, error_class, message, sample, total, open, first_seen,
        last_seen)
    select d.fingerprint, d.kind, d.category, d.error_class, d.message, d.sample, 0, 0, d.at, d.at
    from redrive.group_deltas d where d.fingerprint = mute_v1.fingerprint
    order by d.at limit 1
    on conflict do nothing;
    with muted as (
        update redrive.groups g
        set muted_until = mute_v1.until,
            muted_by = case when until is not null then actor end,
            muted_why = case when until is not null then why end
        where g.fingerprint = mute_v1.fingerprint
        returning g.fingerprint),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, case when until is null then 'unmute' else 'mute' end, why, 1,
               jsonb_build_object('group', m.fingerprint, 'until', mute_v1.until)
        from muted m)
    select exists (select from muted) into is_there;
    return is_there;
end
$$;

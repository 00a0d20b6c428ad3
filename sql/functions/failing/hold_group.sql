-- hold_group: let the failing jobs of a group wait until they are released, or release them. Audited.
-- It holds a thousand of the jobs at once. A chore holds the others, and releases jobs: hold_failing.
-- in:    is_held: false: release them. They are due within half an hour, at most ten of them a second
-- out:   false: there is no such group, or it is not held
-- locks: held_groups, the end of the audit log, then as hold_failing
create or replace function redrive.hold_group_v1(
    fingerprint text, is_held boolean, actor text, why text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    n int;
begin
    if is_held then
        insert into redrive.held_groups as h (fingerprint, actor, why)
        select hold_group_v1.fingerprint, hold_group_v1.actor, hold_group_v1.why
        where exists (select from redrive.grouped g
                      where g.fingerprint = hold_group_v1.fingerprint)
        on conflict (fingerprint) do update
        set at = case when h.spread is null then h.at else clock_timestamp() end,
            actor = excluded.actor, why = excluded.why, spread = null;
    else
        select count(*) into n from redrive.jobs j
        where j.fingerprint = hold_group_v1.fingerprint and j.failed_at is not null
          and j.run_at >= redrive.held_until_v1() and j.run_at < 'infinity';
        update redrive.held_groups h set spread = least(interval '30 min', n * interval '0.1 s')
        where h.fingerprint = hold_group_v1.fingerprint and h.spread is null;
    end if;
    if not found then
        return false;
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (hold_group_v1.actor, case when is_held then 'hold' else 'release' end,
            hold_group_v1.why, 1, jsonb_build_object('group', hold_group_v1.fingerprint));
    if is_held then
        perform redrive.hold_failing_v1(1000);
    end if;
    return true;
end
$$;

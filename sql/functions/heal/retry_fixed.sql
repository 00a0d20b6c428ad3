-- retry_fixed: retry the failing jobs of a resolved group, because all workers have the fix. Audited.
-- Held jobs are tried, too. The group is released when the campaign has succeeded.
-- in:    why: for the audit log; the terms of a campaign
-- out:   true if a campaign has started
-- locks: the group's row, skip locked. Any other lock that takes longer than 100 ms, such as the end
--        of the audit log, puts it off
-- plan:  groups_pkey
create or replace function redrive.retry_fixed_v1(
    fingerprint text, why text, canaries int, abort_share float8)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set jit = off
as $$
declare
    plan bigint;
begin
    perform from redrive.groups g
    where g.fingerprint = retry_fixed_v1.fingerprint for no key update skip locked;
    -- another worker may have started it meanwhile
    if not found or not exists (select from redrive.fixed_v1() f
                                where f.fingerprint = retry_fixed_v1.fingerprint) then
        return false;
    end if;
    plan := (redrive.plan_retry_v1(retry_fixed_v1.fingerprint, 'heal') ->> 'plan')::bigint;
    if plan is null then
        return false;
    end if;
    perform redrive.start_campaign_v1(
        plan, 'heal', retry_fixed_v1.why, null, retry_fixed_v1.canaries,
        retry_fixed_v1.abort_share, null, '{}');
    return true;
exception
    when lock_not_available then
        return false;
end
$$;

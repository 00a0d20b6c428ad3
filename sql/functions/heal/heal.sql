-- heal: plan and start a campaign for one group of failures, once all workers run a version that
-- heals.
-- The version must be new: all workers of the kind run it, and none did before. The campaign covers
-- the group's open dead letters, and its actor is `heal`. A second one retries the jobs of the group
-- that fail now. Audited as any campaign. If a group was
-- first seen after the version came, or had a death in that version, the version did not fix it.
-- in:    the terms of a campaign
-- out:   true if a group, or the last group, was handled: there may be more
-- errors: as plan_campaign and start_campaign
-- locks: heals, skip locked: while one worker handles a kind, the others have nothing to do. Any
--        other lock that takes longer than 100 ms, such as the end of the audit log, puts it off
-- The group's mark commits together with its campaign. So no group gets two campaigns, even if the
-- worker is killed at any moment.
create or replace function redrive.heal_v1(max_redrives int, abort_share float8) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    most constant int := 500000;
    few constant int := 50000;
    selects jsonb;
    h redrive.heals;
    fingerprint text;
    report jsonb;
    stays bigint;
    retry bigint;          -- the campaign over the failing jobs
begin
    if not exists (select from redrive.heals o where o.ended_at is null) then
        return false;
    end if;
    select * into h from redrive.heals o
    where o.ended_at is null
      and exists (select from redrive.workers w
                  where w.lost_at is null and redrive.handles_v1(w.kinds, o.kind))
      and not exists (select from redrive.workers w
                      where w.lost_at is null and w.version <> o.version
                        and redrive.handles_v1(w.kinds, o.kind))
    order by o.first_at, o.kind limit 1 for update skip locked;
    if not found then
        return false;
    end if;
    if h.place = '' then
        perform redrive.supersede_heals_v1(h.kind, h.version, h.first_at);
    end if;
    select min(g.fingerprint) into fingerprint from redrive.healing_v1(array[h.kind]) g
    where g.cause is null;
    update redrive.heals o
    set place = coalesce(fingerprint, o.place),
        ended_at = case when fingerprint is null then clock_timestamp() end
    where o.kind = h.kind and o.version = h.version;
    if fingerprint is null then
        return true;
    end if;
    if redrive.is_failing_v1(fingerprint) then  -- a plan that is not kept uses up a number
        retry := (redrive.plan_retry_v1(fingerprint, 'heal') ->> 'plan')::bigint;
    end if;
    if retry is not null then
        perform redrive.start_campaign_v1(
            retry, 'heal', format('version %s is there', h.version), h.max_rate, h.canaries,
            heal_v1.abort_share, null, jsonb_build_object('version', '===' || h.version));
    end if;
    selects := jsonb_build_object('group', fingerprint, 'kind', jsonb_build_array(h.kind),
                                  'category', jsonb_build_array('bug', 'invalid'));
    begin
        report := redrive.plan_campaign_v1(
            selects || jsonb_build_object('limit', most), heal_v1.max_redrives, 'heal');
    exception
        when query_canceled then
            -- It took longer than a statement may. The next call would fail in the same way, and no
            -- other group would be tried.
            report := redrive.plan_campaign_v1(
                selects || jsonb_build_object('limit', few), heal_v1.max_redrives, 'heal');
    end;
    select coalesce(sum(b.value::bigint), 0) into stays from jsonb_each_text(report -> 'blocked') b;
    if (report ->> 'matched')::bigint <= stays then
        delete from redrive.campaign_jobs j where j.campaign = (report ->> 'plan')::bigint;
        delete from redrive.campaigns c where c.id = (report ->> 'plan')::bigint;
        return true;
    end if;
    perform redrive.start_campaign_v1(
        (report ->> 'plan')::bigint, 'heal', format('version %s is there', h.version), h.max_rate,
        h.canaries, heal_v1.abort_share, null,
        jsonb_build_object('version', '===' || h.version));
    return true;
exception
    when lock_not_available then
        return false;  -- nothing was changed, and the next round tries again
end
$$;

-- heal: where all workers of a kind run a version that heals and was not there before, one of its
-- groups has its turn: a campaign over what is open of it, by the actor `heal`. Audited, as any.
-- A group that was first seen after that version came, or has died in it, is not one that it fixed.
-- in:    as of a campaign
-- out:   whether a group, or the last one, had its turn: there may be more
-- errors: as plan_campaign and start_campaign
-- locks: heals, skip locked: while somebody is at a kind the others have nothing to do. What
--        else is locked for longer than 100 ms puts it off, as the end of the audit log
-- That a group has had its turn commits with its campaign: killed at any moment, none has two.
create or replace function redrive.heal_v1(max_redrives int, abort_share float8) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    most constant int := 500000;  -- so that a plan takes a chore's time
    h redrive.heals;
    fingerprint text;
    report jsonb;
    stays bigint;
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
    report := redrive.plan_campaign_v1(
        jsonb_build_object('group', fingerprint, 'kind', jsonb_build_array(h.kind),
                           'category', jsonb_build_array('bug', 'invalid'), 'limit', most),
        heal_v1.max_redrives, 'heal');
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

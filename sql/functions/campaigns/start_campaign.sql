-- start_campaign: start a planned campaign under the name of an operator. Audited.
-- From now on any live worker carries it out.
-- in:    rate: jobs a second; null: as fast as the jobs end
--        canaries: how many jobs go first; 0: no canaries and no ramp-up
--        abort_share: abort if a larger share of the ended jobs died again
--        conditions: {"breakers": {name: state}, "version": ">=1.4", "to_queue": name}
-- A plan is not started if one of its dead letters was edited after it, because an approval
-- is one of values. A change that left no edit is found when the dead letter is released.
-- errors: RD001 'plan: rule', 'approval: rule', or 'field: rule' for terms that no step could read
create or replace function redrive.start_campaign_v1(
    plan bigint, actor text, why text, rate float8, canaries int, abort_share float8,
    not_before timestamptz, conditions jsonb)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    c redrive.campaigns;
    twice text;
    edited int;
    fault constant text := case
        when rate not between 1e-9 and 1e9 then 'rate: must lie between 1e-9 and 1e9'
        when not isfinite(not_before) then 'not_before: must be finite'
        when not_before > clock_timestamp() + interval '1 year'
            then 'not_before: must be at most a year from now'
        when jsonb_typeof(conditions) is distinct from 'object' then 'conditions: must be an object'
        when conditions - array['breakers', 'version', 'to_queue'] <> '{}'
            then 'conditions: must only have breakers, version and to_queue'
        when jsonb_typeof(conditions -> 'to_queue') <> 'string'
             or conditions ->> 'to_queue' !~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
            then 'conditions.to_queue: must be the name of a queue'
        when jsonb_typeof(conditions -> 'version') <> 'string' or length(conditions ->> 'version') > 255
            then 'conditions.version: must be a text of at most 255 characters'
        when jsonb_typeof(conditions -> 'breakers') <> 'object'
             or jsonb_path_exists(conditions, '$.breakers.* ? (@.type() != "string")')
            then 'conditions.breakers: must map names to states' end;
begin
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    select * into c from redrive.campaigns o
    where o.id = start_campaign_v1.plan and o.planned_login is not null for update;
    -- forget_campaigns is deleting this plan: the rows that it has deleted would never be released.
    if c.state = 'planned'
       and not exists (select from redrive.campaign_jobs j where j.campaign = c.id and j.n = 1) then
        c.state := null;
    end if;
    if c.state is distinct from 'planned' then
        raise exception using errcode = 'RD001', message = format(
            'plan: %s is %s; make a new plan', start_campaign_v1.plan, coalesce(c.state, 'not found'));
    end if;
    select string_agg(a.kind, ', ' order by a.kind) into twice
    from redrive.approvals a
    where (c.planned_login = session_user or redrive.person_v1(c.planned_by) = redrive.person_v1(actor)
           or redrive.sign_in_method_v1(c.planned_by) is distinct from redrive.sign_in_method_v1(actor)
           or c.proposed_by is not null)
      and a.kind in (select jsonb_array_elements_text(c.plan -> 'kinds'));
    if twice is not null and c.proposed_by is not null then
        raise exception using errcode = 'RD001', message = format(
            'approval: %s needs two people, and an agent is none; plan it again', twice);
    elsif twice is not null and c.planned_login <> session_user then
        -- One person may have a token of each role, and so act by two logins. Whoever signs in at the
        -- console may have a login of the database, too, under another name.
        raise exception using errcode = 'RD001', message = format(
            'approval: %s needs two people; %s planned this, so another person must start it, and in the same way: %s',
            twice, c.planned_by,
            coalesce('signed in by ' || redrive.sign_in_method_v1(c.planned_by),
                     'with a login of the database'));
    elsif twice is not null then
        raise exception using errcode = 'RD001', message = format(
            'approval: %s needs two people; a database login other than %s must start this',
            twice, c.planned_login);
    end if;
    select count(*) into edited
    from redrive.campaign_jobs j
    join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives and d.state = 'open'
    where j.campaign = c.id and j.state is null
      and j.id in (select e.job from redrive.edits e)
      and j.digest <> redrive.content_digest_v1(d.payload, d.headers);
    if edited > 0 then
        raise exception using errcode = 'RD001', message = format(
            'plan: %s of its dead letters %s edited after it; make a new plan', edited,
            case edited when 1 then 'was' else 'were' end);
    end if;
    update redrive.campaigns o
    set state = 'waiting', actor = start_campaign_v1.actor, why = start_campaign_v1.why,
        db_user = session_user, rate = start_campaign_v1.rate,
        canaries = start_campaign_v1.canaries, abort_share = start_campaign_v1.abort_share,
        not_before = start_campaign_v1.not_before, conditions = start_campaign_v1.conditions,
        blocked = '{}', started_at = clock_timestamp(), active_at = clock_timestamp()
    where o.id = c.id;
    insert into redrive.audit (actor, action, why, n, detail)
    values (start_campaign_v1.actor, 'redrive', start_campaign_v1.why, c.matched,
            jsonb_build_object(
                'campaign', c.id, 'filter', c.filter, 'rate', start_campaign_v1.rate,
                'canaries', start_campaign_v1.canaries,
                'abort_share', start_campaign_v1.abort_share,
                'planned_by', c.planned_by, 'planned_login', c.planned_login)
            || case when c.proposed_by is null then '{}'
                    else jsonb_build_object('proposed_by', c.proposed_by) end
            || case when start_campaign_v1.conditions = '{}' then '{}'
                    else jsonb_build_object('conditions', start_campaign_v1.conditions) end);
end
$$;

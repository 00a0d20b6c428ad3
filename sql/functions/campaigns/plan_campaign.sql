-- plan_campaign: freeze the open dead letters that a filter selects, oldest first, and report on
-- them.
-- It keeps a digest of each payload with its headers; see start_campaign and step_campaign.
-- Nothing else changes. A plan is deleted after one day if nobody starts it. A plan that matches no
-- dead letters is not kept.
-- in:    filter: the fields of redrive.dead_letters.filter.Filter by name, and include_quarantined,
--        include_invalid and repeat; an absent field excludes nothing
--        actor: null: freeze nothing, and only report
-- out:   plan: the campaign's id; null: nothing is frozen
--        matched: how many dead letters the plan holds
--        missing: ids in the filter that are not part of the plan
--        blocked: cause -> count
--        acted: how many have side effects on record
--        sample
--        groups: at most 100, the most frequent first
-- errors: RD001 'filter: rule'
-- plan:  dead_letters_group_idx, dead_letters_died_idx, ...: planned for each filter
create or replace function redrive.plan_campaign_v1(filter jsonb, max_redrives int, actor text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set work_mem = '64MB'
set jit = off
as $$
#variable_conflict use_column
declare
    f record;
    plan_id bigint;
    report jsonb;
    is_any_keyed boolean;
    names text[];
    owned text[];
begin
    perform redrive.check_actor_v1(actor);
    -- A start writes the filter to the audit log, which takes no more.
    if actor is not null and octet_length(filter::text) > 65536 then
        raise exception using errcode = 'RD001',
            message = 'filter: more than 65536 bytes; pass fewer ids at once';
    end if;
    select * into f from jsonb_to_record(filter) as v(
        ids bigint[], kind text[], queue text[], reason text[], category text[],
        error_class text[], "group" text, owner text, tenant text[], environment text[], version text[],
        holds text[], since timestamptz, until timestamptz, "limit" bigint);
    if f."group" is not null then
        names := redrive.groups_named_v1(f."group");
    end if;
    if f.owner is not null then
        owned := redrive.owned_v1(f.owner);
    end if;
    insert into redrive.campaigns (actor, filter, matched, state, planned_by, planned_login,
                                   max_redrives)
    select plan_campaign_v1.actor, plan_campaign_v1.filter, 0, 'planned', plan_campaign_v1.actor,
           session_user, plan_campaign_v1.max_redrives
    where plan_campaign_v1.actor is not null
    returning id into plan_id;
    with pick as materialized (
        select d.id, d.redrives, d.kind, d.queue, d.fingerprint, o.cause,
               case when plan_id is not null
                    then redrive.content_digest_v1(d.payload, d.headers) end as digest,
               d.ordering_key is not null as keyed,
               (row_number() over (order by d.died_at, d.id))::int as n
        from redrive.dead_letters d
        cross join lateral redrive.redrive_obstacle_v2(
            d.id, d.redrives, d.kind, d.idempotency_key, d.fingerprint, d.reason, d.category,
            d.version, d.deliveries, d.quarantined, plan_campaign_v1.max_redrives,
            plan_campaign_v1.filter) o
        where d.state = 'open'
          and (f.ids is null or d.id = any (f.ids))
          and (f.kind is null or d.kind = any (f.kind))
          and (f.queue is null or d.queue = any (f.queue))
          and (f.reason is null or d.reason = any (f.reason))
          and (f.category is null or d.category = any (f.category))
          and (f.error_class is null or d.error_class = any (f.error_class))
          and (f."group" is null or d.fingerprint = any (names))
          and (f.owner is null or d.queue || '/' || d.kind = any (owned))
          and (f.tenant is null or d.tenant = any (f.tenant))
          and (f.environment is null or d.environment = any (f.environment))
          and (f.version is null or d.version = any (f.version))
          and (f.holds is null or redrive.holds_v1(d.payload, d.headers, f.holds))
          and (f.since is null or d.died_at >= f.since)
          and (f.until is null or d.died_at < f.until)
        order by d.died_at, d.id limit f."limit"),
    frozen as (
        insert into redrive.campaign_jobs (campaign, n, id, redrives, digest)
        select plan_id, p.n, p.id, p.redrives, p.digest from pick p where plan_id is not null),
    counted as materialized (
        select p.fingerprint, p.kind, p.queue, p.cause, count(*) as count, min(p.n) as first,
               bool_or(p.keyed) as keyed
        from pick p group by p.fingerprint, p.kind, p.queue, p.cause),
    causes as materialized (
        select c.fingerprint, sum(c.count)::bigint as count, min(c.first) as first
        from counted c group by c.fingerprint),
    shown as (
        select g.count, g.fingerprint as "group", d.id, d.kind, d.error_class, d.message
        from (select * from causes o order by o.count desc, o.first limit 100) g
        join pick p on p.n = g.first
        cross join lateral (
            -- One lookup for each group: otherwise the planner would read all dead letters to find
            -- a hundred.
            select o.id, o.kind, o.error_class, o.message from redrive.dead_letters o
            where o.id = p.id and o.redrives = p.redrives limit 1) d)
    select jsonb_build_object(
        'plan', plan_id,
        'matched', (select coalesce(sum(g.count), 0) from causes g),
        'missing', (select coalesce(jsonb_agg(distinct a.id order by a.id), '[]')
                    from unnest(f.ids) as a(id) where a.id not in (select p.id from pick p)),
        'blocked', (select coalesce(jsonb_object_agg(b.cause, b.count), '{}')
                    from (select c.cause, sum(c.count)::bigint as count from counted c
                          where c.cause is not null group by c.cause) b),
        'acted', (select count(*) from pick p
                  where exists (select from redrive.side_effects e where e.job = p.id)),
        'sample', (select coalesce(jsonb_agg(s.id order by s.n), '[]')
                   from (select * from pick p where p.n <= 5 limit 5) s),
        'kinds', (select coalesce(jsonb_agg(distinct c.kind), '[]') from counted c),
        'queues', (select coalesce(jsonb_agg(distinct c.queue), '[]') from counted c),
        'groups', (select coalesce(jsonb_agg(to_jsonb(s) order by s.count desc, s.id), '[]')
                   from shown s),
        'group_count', (select count(*) from causes g)),
        (select bool_or(c.keyed) from counted c)
    into report, is_any_keyed;
    if (report ->> 'matched')::int = 0 then
        delete from redrive.campaigns c where c.id = plan_id;
        return report || '{"plan": null}';
    end if;
    if is_any_keyed and plan_id is not null then
        perform redrive.order_keys_v1(plan_id);
    end if;
    -- Store no texts of dead letters here: a role that may read campaigns may not read those.
    update redrive.campaigns c
    set matched = (report ->> 'matched')::int, blocked = report -> 'blocked',
        plan = report - 'groups' - 'missing'
    where c.id = plan_id;
    return report;
end
$$;

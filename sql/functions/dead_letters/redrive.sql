-- redrive: put one chunk of a campaign's open dead letters back to work.
-- It does not check who owns the campaign. Its caller, step_campaign, does.
-- in:    ids; rate: jobs a second; null: all at once
--        first_turn: when the first job is due. Each further job is due 1 / rate later, so the rate
--        limit is a schedule and nothing has to throttle. Jobs that are due in the same tenth of a
--        second are due together at its end, so that one claim takes them. The tenths follow the
--        clock, so two chunks never share one
--        with_quarantined: also quarantined ones, as if the campaign's filter said so
-- out:   id, blocked: null if it went back to work, else the cause:
--        not_open, or as redrive_obstacle
-- The campaign's conditions may name another queue (to_queue). Then the jobs go there: they count as
-- enqueued there and as cancelled here, and the ordering keys that they held here continue.
-- errors: RD001 'campaign: rule', and as admit_names for another queue; 40001 if the transaction's snapshot is older than a change to one
--        of their keys
-- locks: dead letters, ascending; a second operator waits and then finds them not open
-- plan:  dead_letters_pkey; tables by `= any (ids)`, intermediate results by hash joins. A nested
--        loop would read the whole chunk for each of its rows. If it was planned while dead letters
--        were few, it would even read all dead letters for each row
-- Insert first, and mark only the inserted ones: on a conflict the dead letter stays where it is.
create or replace function redrive.redrive_v1(
    ids bigint[], campaign bigint, rate float8, first_turn timestamptz, max_redrives int,
    with_quarantined boolean)
returns table (id bigint, blocked text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    found_ids bigint[];
    causes text[];
    late bigint[];
    -- The campaign's filter also says what the operator has confirmed.
    allowed jsonb := coalesce(
        (select c.filter from redrive.campaigns c where c.id = redrive_v1.campaign), '{}');
    destination constant text := (select c.conditions ->> 'to_queue' from redrive.campaigns c
                                  where c.id = redrive_v1.campaign);
    fair_lanes constant int := (select q.lanes from redrive.queues q where q.queue = destination);
begin
    if destination is not null then
        -- admit checks only the names of jobs that were never redriven
        perform redrive.admit_names_v1(
            array_agg(destination), array_agg(k.kind), array_agg(k.priority))
        from (select distinct d.kind, d.priority from redrive.dead_letters d
              where d.id = any (ids) and d.state is not distinct from 'open') k
        having count(*) > 0;
    end if;
    if with_quarantined then
        allowed := allowed || '{"include_quarantined": true}';
    end if;
    with asked as materialized (
        select v.id, v.n as nth,
               to_timestamp(ceil(
                   (extract(epoch from first_turn)::float8 + (v.n - 1) / rate) * 10) / 10) as turn
        from unnest(ids) with ordinality as v(id, n)),
    pick as materialized (
        select d.*, a.nth, a.turn, o.cause as obstacle
        from redrive.dead_letters d
        join asked a on d.id = a.id
        cross join lateral redrive.redrive_obstacle_v2(
            d.id, d.redrives, d.kind, d.idempotency_key, d.fingerprint, d.reason, d.category,
            d.version, d.deliveries, d.quarantined, max_redrives, allowed) o
        -- `is not distinct from` keeps indexes on state out of the plan
        where d.id = any (ids) and d.state is not distinct from 'open'
        order by d.id
        for update of d),
    back as (
        insert into redrive.jobs (
            id, queue, kind, run_at, deliveries, redrives, max_attempts, priority, lane, created_at,
            expires_at, tenant, ordering_key, idempotency_key, batch, headers, payload)
        select p.id, coalesce(destination, p.queue), p.kind, greatest(clock_timestamp(), p.turn),
               p.deliveries, p.redrives + 1, p.max_attempts, p.priority,
               case when destination is null or destination = p.queue then p.lane
                    -- as enqueue chooses it
                    when p.tenant is not null and fair_lanes > 1
                    then 1 + abs(hashtext(p.tenant)::bigint) % fair_lanes
                    else 0 end,
               p.created_at,
               -- the same time to expire as at first, counted from when the job is due
               greatest(clock_timestamp(), p.turn) + (p.expires_at - p.created_at),
               p.tenant, p.ordering_key, p.idempotency_key, p.batch,
               p.headers - 'attempt_traceparent' || coalesce((
                   -- links the span of the new attempts to the attempt that died
                   select jsonb_build_object('dead_traceparent', f.detail ->> 'traceparent')
                   from redrive.failures f where f.job = p.id and f.detail ? 'traceparent'
                   order by f.deliveries desc limit 1), '{}'),
               p.payload
        from pick p
        -- A live job with this key may end while the insert waits for it. Then there is no
        -- conflict.
        where p.obstacle is null or p.obstacle = 'conflict'
        order by p.id
        on conflict do nothing
        returning id),
    verdict as materialized (
        select p.id, p.nth, p.redrives, p.queue, p.kind, p.reason,
               case when p.id not in (select id from back)
                    then coalesce(p.obstacle, 'conflict') end as cause
        from pick p),
    marked as (
        update redrive.dead_letters d
        set state = case when v.cause is null then 'redriven' else d.state end,
            settled_at = case when v.cause is null then clock_timestamp() end,
            campaign = case when v.cause is null then redrive_v1.campaign else d.campaign end,
            blocked = v.cause
        from verdict v where d.id = any (ids) and d.id = v.id and d.redrives = v.redrives),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select v.queue, v.kind, 'redriven', v.reason, count(*) from verdict v where v.cause is null
        group by v.queue, v.kind, v.reason
        union all
        select v.queue, v.kind, 'outcome', 'blocked', count(*) from verdict v
        where v.cause is not null group by v.queue, v.kind
        union all
        select e.queue, v.kind, e.event, '', count(*)
        from verdict v, lateral (values (destination, 'enqueued'), (v.queue, 'claimed'),
                                        (v.queue, 'cancelled')) as e(queue, event)
        where v.cause is null and destination <> v.queue group by e.queue, v.kind, e.event)
    select array_agg(a.id order by a.nth), array_agg(a.cause order by a.nth)
    into found_ids, causes
    from (select id, nth, cause from verdict
          union all
          select id, nth, 'not_open' from asked where id not in (select id from verdict)) a;
    perform redrive.refuse_unseen_v1(array_agg(j.kind), array_agg(j.idempotency_key))
    from unnest(found_ids, causes) as v(id, cause)
    join redrive.jobs j on j.id = v.id
    where j.id = any (ids) and v.cause is null and j.idempotency_key is not null
    having count(*) > 0;
    -- The key may have succeeded between two snapshots. An insert above may have waited for the job
    -- that held the key, and this statement sees what that job's completion wrote. Open such a dead
    -- letter again.
    with repeated as materialized (
        select j.id, j.redrives - 1 as redrives, j.queue, j.kind, j.batch
        from unnest(found_ids, causes) as v(id, cause)
        join redrive.jobs j on j.id = v.id
        where j.id = any (ids) and v.cause is null
          and exists (select from redrive.completions c
                      where c.kind = j.kind and c.key = j.idempotency_key)),
    withdrawn as (
        delete from redrive.jobs j using repeated r where j.id = any (ids) and j.id = r.id),
    unparked as (
        delete from redrive.limit_waits w where w.job = any (array(select r.id from repeated r))),
    reopened as (
        update redrive.dead_letters d
        set state = 'open', settled_at = null, campaign = null, blocked = 'succeeded'
        from repeated r where d.id = any (ids) and d.id = r.id and d.redrives = r.redrives
        returning d.id, d.queue, d.kind, d.reason),
    batched as (                                 -- admit has counted them as live again
        insert into redrive.batch_deltas (batch, dead)
        select r.batch, count(*) from repeated r where r.batch is not null group by r.batch),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select o.queue, o.kind, 'redriven', o.reason, -count(*) from reopened o
        group by o.queue, o.kind, o.reason
        union all
        select o.queue, o.kind, 'outcome', 'blocked', count(*) from reopened o
        group by o.queue, o.kind
        union all
        select e.queue, o.kind, e.event, '', -count(*)
        from reopened o, lateral (values (destination, 'enqueued'), (o.queue, 'claimed'),
                                         (o.queue, 'cancelled')) as e(queue, event)
        where destination <> o.queue group by e.queue, o.kind, e.event)
    select array_agg(o.id) into late from reopened o;
    if exists (select from redrive.kind_redrives k where k.rate is not null) then
        perform redrive.limit_redrives_v1(array(
            select v.id from unnest(found_ids, causes) as v(id, cause)
            where v.cause is null and not v.id = any (coalesce(late, '{}'))));
    end if;
    -- Record progress for readers; it is also the final record if this is the last chunk.
    update redrive.campaigns c
    set active_at = clock_timestamp(),
        redriven = c.redriven + coalesce(cardinality(array_positions(causes, null)), 0)
                   - coalesce(cardinality(late), 0)
    where c.id = redrive_v1.campaign;
    if not found and campaign is not null then
        raise exception using errcode = 'RD001',
            message = 'campaign: it was deleted meanwhile; make a new plan';
    end if;
    if destination is not null then
        perform redrive.wake_keys_v1(array_agg(d.queue), array_agg(d.ordering_key))
        from redrive.dead_letters d
        where d.id = any (ids) and d.state is not distinct from 'redriven'
          and d.campaign = redrive_v1.campaign and d.holds_key and d.queue <> destination;
    end if;
    if campaign is null then
        perform redrive.count_run_v1(
            null, 'redrive',
            coalesce(cardinality(array_positions(causes, null)), 0)
                - coalesce(cardinality(late), 0),
            jsonb_build_object('ids', to_jsonb(ids)));
    end if;
    return query
    select v.id, case when v.id = any (late) then 'succeeded' else v.cause end
    from unnest(found_ids, causes) as v(id, cause);
end
$$;

-- settle: end the attempts of a batch of jobs in any way but success.
-- in:    parallel arrays, ascending by id and then deliveries: workers, claims, ids
--        deliveries: as claimed; they prove the ownership: see complete
--        outcomes: retry | release | rescue | dead | cancel
--        run_ats: when to run again, or null for now + delays seconds
--        refunds: the attempt does not count
--        losses: how many to add: the process died while it ran the job
--        failures: {error_class, message, category, fingerprint, detail} or null
--        reasons: why the job died or was released
--        ended: claims that become empty with this batch
-- out:   the ids that were settled; the worker no longer owned the others
-- locks: job rows, ascending, then their claims; the next jobs of their ordering keys, skip locked;
--        and what wake locks
-- plan:  jobs_pkey, claims_pkey
-- width_bucket(j.id, ids) is the place of a job in the ascending arrays: the number of ids up to
-- this one, found by a binary search. So outcomes[width_bucket(j.id, ids)] is the job's outcome. If
-- an id is there twice, this is its last place. complete says why there is no join.
create or replace function redrive.settle_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], outcomes text[],
    run_ats timestamptz[], delays float8[], refunds boolean[], losses int[], failures jsonb[],
    reasons text[], ended bigint[])
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    ours bigint[];
    vacated bigint[];      -- the jobs whose slots become free
begin
    -- 1. Record the cancelled jobs, before they are deleted.
    if 'cancel' = any (outcomes) then
        perform redrive.end_cancelled_v1(workers, claims, ids, deliveries, outcomes);
    end if;

    -- 2. Check which claims exist.
    with alive as materialized (
        select k.id, k.worker from redrive.claims k
        where k.worker = any (workers) and k.id = any (claims)),
    checked as (
        select array_agg(a.id is not null order by c.n) as is_claimed
        from unnest(claims, workers) with ordinality as c(id, worker, n)
        left join alive a on a.id = c.id and a.worker = c.worker),

    -- 3. Delete the jobs that died or were cancelled, if these workers own them.
    deleted as (
        delete from redrive.jobs j
        where j.id = any (ids) and outcomes[width_bucket(j.id, ids)] in ('dead', 'cancel')
          and j.deliveries = settle_v1.deliveries[width_bucket(j.id, ids)] - 1
          and (select k.is_claimed from checked k)[width_bucket(j.id, ids)]
        returning j.*, width_bucket(j.id, ids) as place),
    gone as (
        select d.*, workers[place] as held_by, claims[place] as claim,
               settle_v1.deliveries[place] as delivered,
               d.attempt + 1 as tried,
               outcomes[place] as outcome, failures[place] as failure, reasons[place] as reason,
               settle_v1.refunds[place] as refund, settle_v1.losses[place] as lost,
               case when outcomes[place] = 'dead' and d.ordering_key is not null
                    then nullif(redrive.holds_key_v1(d.kind), false) end as holds_key
        from deleted d),

    -- 4. Put the other jobs back to wait: retried, released or rescued.
    returned as (
        update redrive.jobs j
        set (deliveries, run_at, lane, attempt, losses, refunds, failed_at, streak, fingerprint,
             headers) = (
            select settle_v1.deliveries[v.place],
                   greatest(clock_timestamp(), coalesce(
                       run_ats[v.place],
                       clock_timestamp() + delays[v.place] * interval '1 second')),
                   -- A job that was interrupted has waited already.
                   case when v.has_ended then greatest(j.lane, ~j.lane)
                        else least(j.lane, ~j.lane) end,
                   j.attempt + 1 - v.refund::int,
                   -- a job whose end was reported has not killed its process
                   case when v.has_ended then 0
                        else redrive.recent_losses_v1(j.losses, j.failed_at) + v.lost end,
                   case when v.outcome = 'retry' and v.refund and v.lost = 0
                        then coalesce(j.refunds, 0) + 1 else j.refunds end,
                   case when v.failure is null then j.failed_at else clock_timestamp() end,
                   case when v.failure is null then j.streak
                        when v.failure ->> 'fingerprint' = j.fingerprint then j.streak + 1
                        else 1 end,
                   coalesce(v.failure ->> 'fingerprint', j.fingerprint),
                   -- links the span of the next attempt to this attempt
                   case when v.failure -> 'detail' ? 'traceparent'
                        then j.headers || jsonb_build_object(
                            'attempt_traceparent', v.failure -> 'detail' -> 'traceparent')
                        else j.headers end
            from (select p.place, outcomes[p.place] as outcome, settle_v1.refunds[p.place] as refund,
                         settle_v1.losses[p.place] as lost, failures[p.place] as failure,
                         settle_v1.losses[p.place] = 0 and (
                             outcomes[p.place] = 'retry'
                             or reasons[p.place] is not distinct from 'snoozed') as has_ended
                  from (select width_bucket(j.id, ids) as place) p) v)
        where j.id = any (ids)
          and outcomes[width_bucket(j.id, ids)] in ('retry', 'release', 'rescue')
          and j.deliveries = settle_v1.deliveries[width_bucket(j.id, ids)] - 1
          and (select k.is_claimed from checked k)[width_bucket(j.id, ids)]
        returning j.id, j.deliveries, j.attempt, j.queue, j.kind, j.ordering_key,
                  width_bucket(j.id, ids) as place),
    back as (
        select r.id, claims[place] as claim, r.deliveries,
               r.attempt + settle_v1.refunds[place]::int as attempt, r.queue, r.kind, r.ordering_key,
               workers[place] as held_by, outcomes[place] as outcome, failures[place] as failure,
               reasons[place] as reason
        from returned r),

    -- 5. Take the jobs out of their claims, and free their ordering keys.
    -- These jobs may run again before their claim ends, so the claim must not list them any longer.
    unlisted as (
        update redrive.claims k
        set ids = array(select c.id from unnest(k.ids) with ordinality as c(id, n)
                        where c.id not in (select g.id from gone g union all
                                           select b.id from back b)
                        order by c.n)
        where k.id = any (array(select g.claim from gone g union select b.claim from back b))
          and k.id <> all (ended)),
    over as (
        delete from redrive.claims k where k.id = any (ended) and k.worker = any (workers)),
    freed as (
        delete from redrive.running_keys r
        where r.job = any (array(select g.id from gone g where g.ordering_key is not null union all
                                 select b.id from back b where b.ordering_key is not null))),

    -- 6. Record the failures, and insert the dead letters.
    recorded as (
        insert into redrive.failures (job, deliveries, attempt, worker, error_class, message,
                                      category, fingerprint, detail)
        select s.id, s.deliveries, s.attempt,
               (select w.name from redrive.workers w where w.id = s.held_by),
               s.failure ->> 'error_class', s.failure ->> 'message', s.failure ->> 'category',
               s.failure ->> 'fingerprint', coalesce(s.failure -> 'detail', '{}')
        from (select id, delivered as deliveries, tried as attempt, held_by, failure from gone
              where outcome = 'dead'
              union all
              select id, deliveries, attempt, held_by, failure from back) s
        where s.failure is not null),
    grouped as (                                 -- count_buried counts the jobs that died
        insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample,
                                          version, added, opened, failed)
        select b.failure ->> 'fingerprint', min(b.kind), min(b.failure ->> 'category'),
               min(b.failure ->> 'error_class'), min(b.failure ->> 'message'), max(b.id),
               coalesce(b.failure -> 'detail' ->> 'version', ''), 0, 0, count(*)
        from back b where b.failure is not null
        group by b.failure ->> 'fingerprint', coalesce(b.failure -> 'detail' ->> 'version', '')),
    buried as (
        insert into redrive.dead_letters (
            id, redrives, queue, kind, reason, category, error_class, message, fingerprint,
            attempts, deliveries, losses, max_attempts, priority, lane, created_at,
            first_failed_at, expires_at, tenant, ordering_key, idempotency_key, headers, payload,
            batch, environment, version, holds_key, quarantined)
        select g.id, g.redrives, g.queue, g.kind, g.reason,
               coalesce(g.failure ->> 'category', 'other'),
               coalesce(g.failure ->> 'error_class', ''), coalesce(g.failure ->> 'message', ''),
               coalesce(g.failure ->> 'fingerprint', ''), g.tried - g.refund::int, g.delivered,
               g.losses + g.lost, g.max_attempts, g.priority, greatest(g.lane, ~g.lane), g.created_at,
               coalesce((select min(f.at) from redrive.failures f
                         where g.failed_at is not null and f.job = g.id), clock_timestamp()),
               g.expires_at, g.tenant, g.ordering_key, g.idempotency_key, g.headers, g.payload,
               g.batch, g.failure -> 'detail' ->> 'environment',
               -- a lost worker, for example, has not said its version
               coalesce(g.failure -> 'detail' ->> 'version',
                        (select nullif(w.version, '') from redrive.workers w
                         where w.id = g.held_by)),
               g.holds_key,
               case when g.redrives > 0 then nullif(redrive.repeats_v1(
                   g.id, g.redrives, g.failure ->> 'fingerprint', g.failure ->> 'category'), false)
               end
        from gone g where g.outcome = 'dead'),

    -- 7. Count ended jobs in their batches, and settle the dead letters that were redriven.
    batched as (
        insert into redrive.batch_deltas (batch, dead, cancelled)
        select batch, count(*) filter (where outcome = 'dead'),
               count(*) filter (where outcome = 'cancel')
        from gone where batch is not null group by batch),
    -- The redrive that released this job gets its outcome now. Rows are found as in complete.sql.
    -- `is true` prevents a join that would read the whole batch for each of them.
    dead_again as (
        update redrive.dead_letters d
        set outcome = 'dead_again'
        where d.state is not distinct from 'redriven'
          and d.id = any (array(select id from gone where redrives > 0 and outcome = 'dead'))
          and ((d.id, d.redrives) in (select id, redrives - 1 from gone)) is true),
    resolved as (
        update redrive.dead_letters d
        set state = 'resolved',
            outcome = case when (d.id, d.redrives) in (select id, redrives - 1 from gone)
                           then 'cancelled' else d.outcome end
        where d.state is not distinct from 'redriven'
          and d.id = any (array(select id from gone where redrives > 0 and outcome = 'cancel'))
        returning d.queue, d.kind),

    -- 8. Delete what cancelled jobs leave behind.
    forgotten as (
        delete from redrive.failures f
        where f.job = any (array(select id from gone
                                 where outcome = 'cancel' and failed_at is not null
                                   and redrives = 0))),
    unnoted as (
        delete from redrive.side_effects e
        where e.job = any (array(select id from gone
                                 where outcome = 'cancel' and noted and redrives = 0))),
    heeded as (                                  -- end_cancellations_v1 writes it to the audit log
        update redrive.cancellations c set is_heeded = true
        where c.job = any (array(select id from gone where outcome = 'cancel'))),

    -- 9. Wake the next job of each ordering key.
    -- if the row of a next job is locked, unpark tries again
    heads as materialized (
        select n.id from redrive.jobs n
        where n.id = any (array(
                select h.id
                from (select id, queue, ordering_key, false as is_back, holds_key from gone
                      where ordering_key is not null
                      union all
                      select id, queue, ordering_key, true, null from back
                      where ordering_key is not null) s
                cross join lateral (
                    select o.id from redrive.jobs o
                    where o.queue = s.queue and o.ordering_key = s.ordering_key
                      and (o.id <> s.id or s.is_back)
                      and o.id >= coalesce((
                          select k.jobs_from from redrive.hot_keys k
                          where k.queue = s.queue and k.ordering_key = s.ordering_key), 0)
                    order by o.id limit 1) h
                -- not if the new dead letter of this statement holds the key, or an older one does
                where h.id <> s.id and not (s.holds_key is true and s.id < h.id)))
          and (n.run_at < clock_timestamp() or n.run_at = 'infinity')
          and not redrive.is_key_held_v1(n.queue, n.ordering_key, n.id)
        for no key update skip locked),
    promoted as (
        update redrive.jobs n set run_at = clock_timestamp(), lane = least(n.lane, ~n.lane)
        where n.id = any (array(select h.id from heads h))),

    -- 10. Count the outcomes.
    settled as (
        select id, queue, kind, case outcome when 'dead' then 'dead' else 'cancelled' end as event,
               coalesce(reason, '') as reason from gone
        union all
        select id, queue, kind,
               case outcome when 'retry' then 'retried' when 'rescue' then 'rescued'
                            else 'released' end,
               coalesce(reason, '') from back
        union all
        select id, queue, kind, 'outcome',
               case outcome when 'dead' then 'dead_again' else 'cancelled' end
        from gone where redrives > 0),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, event, reason, count(*) from settled group by queue, kind, event, reason
        union all
        select queue, kind, 'resolved', '', count(*) from resolved group by queue, kind)
    select array_agg(s.id) into ours from settled s where s.event <> 'outcome';

    -- 11. Free the slots of the limits.
    -- A job that its handler completed in its own transaction has left its slot to free here.
    vacated := array(select s.job from redrive.limit_slots s
                   where s.job = any (ids)
                     and (s.job = any (ours)
                          or not exists (select from redrive.jobs j where j.id = s.job)));
    if cardinality(vacated) > 0 then
        perform redrive.free_slots_v1(vacated);
    end if;

    -- 12. Wake workers, because this one may be about to stop.
    if outcomes && '{release,rescue}' and 0 = any (delays) then
        perform redrive.tell_v1(65535);
    end if;
    return query select o.id from unnest(ours) as o(id);
end
$$;

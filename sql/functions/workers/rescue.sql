-- rescue: take jobs back from workers whose heartbeat stopped, and settle them as lost: one step.
-- in:    ttl: for workers that declared none of their own
-- out:   counts; lost: the workers of this step, at most 4, chosen at random because some may be
--        locked. Fewer if they hold thousands of jobs, so that a step fits into a call's time
-- locks: lost worker rows exclusively, skip locked (so it waits for no claim); then their jobs, and
--        the dead letters of these, skip locked: see busy
-- plan:  claims_worker_idx, jobs_pkey: it costs what it moves
create or replace function redrive.rescue_v1(
    ttl interval, out lost int, out rescued int, out buried int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    lost_ids int[];
    busy bigint[];
    held record;
begin
    -- 1. Mark the lost workers. This closes the race with a claim, which holds its worker row for
    -- key share and checks lost_at again.
    perform redrive.mark_lost_v1(ttl);

    -- 2. Give each claim whose worker has no row a lost worker. Else it would belong to nobody.
    insert into redrive.workers (id, name, lost_at) overriding system value
    select distinct k.worker, 'unknown', clock_timestamp() from redrive.claims k
    where k.id >= coalesce((select e.claims_from from redrive.epoch e), 0)
      and not exists (select from redrive.workers w where w.id = k.worker)
    on conflict do nothing;
    -- Now each live claim has a worker, and each worker row knows where its claims begin.
    update redrive.epoch e set claims_from = w.start
    from (select min(o.claims_from) as start from redrive.workers o) w
    where e.claims_from < w.start;

    -- 3. Lock up to four lost workers. Take no other one after 2,000 jobs.
    select array_agg(s.id) into lost_ids
    from (
        select l.id, sum(k.jobs) over (order by l.place) - k.jobs as before
        from (select w.id, random() as place from redrive.workers w where w.lost_at is not null
              order by place limit 4 for update skip locked) l
        cross join lateral (
            select coalesce(sum(cardinality(c.ids)), 0) as jobs from redrive.claims c
            where c.worker = l.id and c.id >= redrive.claims_from_v1(l.id)) k) s
    where s.before < 2000;
    lost := coalesce(cardinality(lost_ids), 0); rescued := 0; buried := 0;
    if lost = 0 then
        return;
    end if;

    -- 4. Lock their jobs, and decide how each ends.
    busy := redrive.busy_v1(array(select h.id from redrive.held_v1(lost_ids) h));
    with listed as materialized (
        select h.* from redrive.held_v1(lost_ids) h
        where h.id not in (select b.id from unnest(busy) as b(id))),
    -- Check each job against the list: it may have been settled and claimed again since. A handler
    -- of a paused worker may hold one in its own transaction.
    here as materialized (
        select j.id, j.deliveries, l.worker, l.claim
        from listed l
        join redrive.jobs j on j.id = l.id and j.deliveries = l.deliveries
        order by j.id
        for update of j skip locked),
    judged as materialized (
        select l.worker, v.*
        from (select a.worker, array_agg(a.id) as ids from listed a group by a.worker) l,
        redrive.judge_loss_v1(l.worker, l.ids) v),
    -- Pair each job with its judgement by sorting: a worker may hold thousands of jobs, and a join
    -- would compare each with each here.
    paired as (
        select p.id, p.worker, max(p.claim) as claim, max(p.deliveries) as deliveries,
               max(p.outcome) as outcome, max(p.reason) as reason, bool_or(p.refund) as refund,
               max(p.losses) as losses,
               (array_agg(p.failure) filter (where p.outcome is not null))[1] as failure
        from (
            select h.id, h.worker, h.claim, h.deliveries, null as outcome, null as reason,
                   null::boolean as refund, null::int as losses, null::jsonb as failure
            from here h
            union all
            select v.id, v.worker, null, null, v.outcome, v.reason, v.refund, v.losses, v.failure
            from judged v) p
        group by p.id, p.worker
        having count(p.deliveries) > 0 and count(p.outcome) > 0)
    select array_agg(p.id order by p.id) as ids, array_agg(p.worker order by p.id) as workers,
           array_agg(p.claim order by p.id) as claims,
           array_agg(p.deliveries + 1 order by p.id) as deliveries,
           array_agg(p.outcome order by p.id) as outcomes,
           array_agg(p.reason order by p.id) as reasons,
           array_agg(p.refund order by p.id) as refunds,
           array_agg(p.losses order by p.id) as losses,
           array_agg(p.failure order by p.id) as failures
    into held
    from paired p;

    -- 5. Settle these jobs.
    select count(*) filter (where s.outcome = 'rescue'), count(*) filter (where s.outcome = 'dead')
    into rescued, buried
    from redrive.settle_lost_v1(
        held.workers, held.claims, held.ids, held.deliveries, held.outcomes, held.refunds,
        held.losses, held.failures, held.reasons) s;

    -- 6. Delete the claims, and the workers that have none left.
    -- Locked jobs stay with their lost worker, and a later rescue takes them.
    perform redrive.end_claims_v1(lost_ids);
    delete from redrive.workers w
    where w.id = any (lost_ids)
      and not exists (select from redrive.claims k
                      where k.worker = w.id and k.id >= redrive.claims_from_v1(w.id));
end
$$;

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
    ids bigint[];          -- the jobs to settle, and how each was claimed
    workers int[];
    claims bigint[];
    deliveries int[];
    judged record;         -- how each ends, in the same order
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

    -- 4. Lock their jobs, and decide how each ends. A job that was settled meanwhile is in no claim.
    -- Both lists have the same length: a locked job stays, and judge_loss has a row for each.
    busy := redrive.busy_v1(array(select h.id from redrive.held_v1(lost_ids) h));
    select array_agg(h.id), array_agg(h.worker), array_agg(h.claim), array_agg(h.deliveries + 1)
    into ids, workers, claims, deliveries
    from (select h.* from redrive.held_v1(lost_ids) h
          where h.id not in (select b.id from unnest(busy) as b(id))
          order by h.id, h.worker) h;
    select array_agg(v.outcome) as outcomes, array_agg(v.reason) as reasons,
           array_agg(v.refund) as refunds, array_agg(v.losses) as losses,
           array_agg(v.failure) as failures
    into judged
    from (select v.*
          from (select h.worker, array_agg(h.id) as held from unnest(ids, workers) as h(id, worker)
                group by h.worker) l,
          redrive.judge_loss_v1(l.worker, l.held) v
          order by v.id, l.worker) v;

    -- 5. Settle these jobs.
    select count(*) filter (where s.outcome = 'rescue'), count(*) filter (where s.outcome = 'dead')
    into rescued, buried
    from redrive.settle_lost_v1(
        workers, claims, ids, deliveries, judged.outcomes, judged.refunds, judged.losses,
        judged.failures, judged.reasons) s;

    -- 6. Delete the claims, and the workers that have none left.
    -- Locked jobs stay with their lost worker, and a later rescue takes them.
    perform redrive.end_claims_v1(lost_ids);
    delete from redrive.workers w
    where w.id = any (lost_ids)
      and not exists (select from redrive.claims k
                      where k.worker = w.id and k.id >= redrive.claims_from_v1(w.id));
end
$$;

-- complete: complete a batch of jobs; almost each attempt ends this way.
-- in:    parallel arrays, ascending by id and then deliveries: workers, claims, ids, deliveries (as
--        claimed)
--        ended: claims that become empty with this batch; null: a handler calls this in its own
--        transaction
-- out:   null if all were settled, else the ids that were; the worker no longer owned the others
-- locks: job rows, ascending; the next jobs of their ordering keys, skip locked; and what wake
--        locks. In a handler's transaction it locks nothing of a limit, because other claims lock
--        the same limit. settle frees the slot when the handler has returned
-- plan:  jobs_pkey, claims_pkey
-- Two conditions prove the ownership of a job. The claim exists and belongs to its worker, and the
-- job's deliveries are the same as when it was claimed. To take a job from a claim raises its
-- deliveries, and this statement checks them again after a wait.
-- width_bucket(j.id, ids) is the place of a job in the ascending arrays: the number of ids up to
-- this one, found by a binary search. So deliveries[width_bucket(j.id, ids)] is of this job. With a
-- join to the batch, a plan made while the table was empty would read all jobs for each job of the
-- batch.
create or replace function redrive.complete_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], ended bigint[])
returns bigint[]
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
    settled bigint[];
    batches bigint[];            -- of the jobs that have one
    is_any_limited boolean;
    noted bigint[];        -- the jobs that may have left a checkpoint
    kept bigint[];         -- the jobs whose queues have a history
    kept_at timestamptz;
    -- the jobs that are special, see 3, and what else is known of them
    special_ids bigint[];
    queues text[];
    kinds text[];
    idempotency_keys text[];
    ordering_keys text[];
    have_failed boolean[];
    redrives int[];
    are_noted boolean[];
    created_ats timestamptz[];
begin
    -- 1. Copy the jobs to the history, before they are deleted.
    if exists (select from redrive.history_queues) then
        kept_at := clock_timestamp();
        kept := redrive.keep_history_v1('completed', workers, ids, deliveries, kept_at);
    end if;

    -- 2. Check which claims exist, delete the jobs that these workers own, and count them. Delete
    -- the claims that are empty.
    with alive as materialized (
        select k.id, k.worker from redrive.claims k
        where k.worker = any (workers) and k.id = any (claims)),
    checked as (
        select array_agg(a.id is not null order by c.n) as is_claimed
        from unnest(claims, workers) with ordinality as c(id, worker, n)
        left join alive a on a.id = c.id and a.worker = c.worker),
    gone as (
        delete from redrive.jobs j
        where j.id = any (ids)
          and j.deliveries = complete_v1.deliveries[width_bucket(j.id, ids)] - 1
          and (select k.is_claimed from checked k)[width_bucket(j.id, ids)]
        returning j.id, j.queue, j.kind, j.idempotency_key, j.ordering_key, j.failed_at, j.redrives,
                  j.noted, j.created_at, j.batch, j.limits is not null as is_limited,
                  j.idempotency_key is not null or j.ordering_key is not null
                  or j.failed_at is not null or j.redrives > 0 or j.noted as is_special),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select queue, kind, 'completed', count(*) from gone group by queue, kind),
    over as (
        delete from redrive.claims k where k.id = any (ended) and k.worker = any (workers))
    select case when count(*) < cardinality(ids) then coalesce(array_agg(g.id), '{}') end,
           array_agg(g.batch) filter (where g.batch is not null),
           bool_or(g.is_limited),
           array_agg(g.id) filter (where g.is_special),
           array_agg(g.queue) filter (where g.is_special),
           array_agg(g.kind) filter (where g.is_special),
           array_agg(g.idempotency_key) filter (where g.is_special),
           array_agg(g.ordering_key) filter (where g.is_special),
           array_agg(g.failed_at is not null) filter (where g.is_special),
           array_agg(g.redrives) filter (where g.is_special),
           array_agg(g.noted) filter (where g.is_special),
           array_agg(g.created_at) filter (where g.is_special)
    into settled, batches, is_any_limited, special_ids, queues, kinds, idempotency_keys,
         ordering_keys, have_failed, redrives, are_noted, created_ats
    from gone g;

    -- 3. Remember keys, resolve dead letters, delete failures, side effects and running keys.
    -- Few jobs need this statement. It costs as much as the one before, even if it finds nothing.
    -- It finds its rows by `= any (array(...))`. With a join, a plan made while these tables were
    -- empty would read whole tables for each job. For the same reason `is not distinct from` keeps
    -- an index on state out of the plan.
    if special_ids is not null then
        with special as materialized (
            select * from unnest(special_ids, queues, kinds, idempotency_keys, ordering_keys,
                                 have_failed, redrives, are_noted, created_ats)
                as s(id, queue, kind, idempotency_key, ordering_key,
                     has_failed, redrives, noted, created_at)),
        remembered as (
            insert into redrive.completions (kind, key, job, enqueued_at)
            select kind, idempotency_key, id, created_at from special
            where idempotency_key is not null
            on conflict do nothing),
        forgotten as (
            delete from redrive.failures f
            where f.job = any (array(select id from special
                                     where has_failed and redrives = 0))),
        unnoted as (
            delete from redrive.side_effects e
            where e.job = any (array(select id from special where noted and redrives = 0))),
        resolved as (
            update redrive.dead_letters d
            set state = 'resolved',
                outcome = case when (d.id, d.redrives) in (select id, redrives - 1 from special)
                               then 'succeeded' else d.outcome end
            where d.state is not distinct from 'redriven'
              and d.id = any (array(select id from special where redrives > 0))
            returning d.queue, d.kind),
        freed as (
            delete from redrive.running_keys r
            where r.job = any (array(select id from special where ordering_key is not null))),

        -- 4. Wake the next job of each ordering key.
        -- The next job of each finished ordering key becomes due now, so claims that have moved
        -- past its old place find it. If its row is locked, unpark tries again.
        heads as materialized (
            select n.id from redrive.jobs n
            where n.id = any (array(
                    select (select o.id from redrive.jobs o
                            where o.queue = g.queue and o.ordering_key = g.ordering_key
                              and o.id >= coalesce((
                                  select h.jobs_from from redrive.hot_keys h
                                  where h.queue = g.queue and h.ordering_key = g.ordering_key), 0)
                            order by o.id limit 1)
                    from special g where g.ordering_key is not null))
              and (n.run_at < clock_timestamp() or n.run_at = 'infinity')
              and not redrive.is_key_held_v1(n.queue, n.ordering_key, n.id)
            for no key update skip locked),
        promoted as (
            update redrive.jobs n set run_at = clock_timestamp(), lane = least(n.lane, ~n.lane)
            where n.id = any (array(select h.id from heads h))),
        counted as (
            insert into redrive.deltas (queue, kind, event, n)
            select queue, kind, 'resolved', count(*) from resolved group by queue, kind),
        judged as (
            insert into redrive.deltas (queue, kind, event, reason, n)
            select queue, kind, 'outcome', 'succeeded', count(*) from special
            where redrives > 0 group by queue, kind)
        select array_agg(s.id) into noted from special s where s.noted or s.redrives > 0;
    end if;

    -- 5. Count the batches, free the slots, and delete checkpoints and copies of jobs not ours.
    if batches is not null then
        insert into redrive.batch_deltas (batch, succeeded)
        select b.id, count(*) from unnest(batches) as b(id) group by b.id;
    end if;
    if is_any_limited and ended is not null then
        perform redrive.free_slots_v1(coalesce(settled, ids));
    end if;
    if noted is not null then
        perform redrive.drop_checkpoints_v1(noted);
    end if;
    if kept is not null and settled is not null then
        perform redrive.drop_from_history_v1(kept, settled, kept_at);
    end if;
    return settled;
end
$$;

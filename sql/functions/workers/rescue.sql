-- rescue: take jobs back from workers whose heartbeat stopped, and settle them as lost: one step.
-- in:    ttl: for workers that said none of their own
--        max_losses: a job that lost this many workers is dead-lettered, it may be what kills
--        them
-- out:   counts; lost: workers that were found, 0 when nothing is left to do
-- locks: lost worker rows exclusively (waits for no claim: skip locked), then their claims and
--        jobs, skip locked
-- plan:  claims_worker_idx, jobs_pkey: it costs what it moves, at most 100 claims
create or replace function redrive.rescue_v1(
    ttl interval, max_losses int, out lost int, out rescued int, out buried int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    lost_ids int[];
    held record;
begin
    -- Marking first closes the race with a claim: it holds its worker row for key share and looks
    -- at lost_at again. A worker has done so already, by itself; the release before has not.
    perform redrive.mark_lost_v1(ttl);
    -- A claim whose worker nobody knows is nobody's either.
    insert into redrive.workers (id, name, lost_at) overriding system value
    select distinct k.worker, 'unknown', clock_timestamp() from redrive.claims k
    where not exists (select from redrive.workers w where w.id = k.worker)
    on conflict do nothing;
    select array_agg(s.id) into lost_ids
    from (select w.id from redrive.workers w where w.lost_at is not null for update skip locked) s;
    lost := coalesce(cardinality(lost_ids), 0); rescued := 0; buried := 0;
    if lost = 0 then
        return;
    end if;
    with dropped as materialized (
        select k.id, k.worker, k.ids from redrive.claims k
        where k.worker = any (lost_ids)
        order by k.id
        limit 100
        for update skip locked),
    listed as materialized (
        select d.worker, d.id as claim, c.id from dropped d, unnest(d.ids) as c(id)
        union all
        select * from redrive.marked_v1(lost_ids)),
    -- a handler of a paused worker may hold one in its own transaction
    here as materialized (
        select j.id, j.deliveries, j.losses, j.worker from redrive.jobs j
        where j.id = any (array(select l.id from listed l))
        order by j.id
        for update skip locked)
    select array_agg(h.id) as ids, array_agg(l.worker) as workers, array_agg(l.claim) as claims,
           array_agg(h.deliveries + (h.worker is null)::int) as deliveries,
           array_agg(case when h.losses + 1 >= max_losses then 'dead' else 'rescue' end)
               as outcomes,
           array_agg(case when h.losses + 1 >= max_losses then 'killed_worker'
                          else 'worker_lost' end) as reasons,
           count(*)::int as n
    into held
    from here h join listed l on l.id = h.id;
    select count(*) filter (where o.outcome = 'rescue'), count(*) filter (where o.outcome = 'dead')
    into rescued, buried
    from redrive.settle_v2(
        held.workers, held.claims, held.ids, held.deliveries, held.outcomes,
        array_fill(null::timestamptz, array[held.n]), array_fill(0::float8, array[held.n]),
        array_fill(false, array[held.n]), array_fill(1, array[held.n]),
        array_fill(jsonb_build_object(
            'error_class', 'WorkerLost',
            'message', 'the worker stopped beating while it held the job',
            'category', 'lost', 'fingerprint', 'worker-lost'), array[held.n]),
        held.reasons, '{}') s(id)
    join unnest(held.ids, held.outcomes) o(id, outcome) on o.id = s.id;
    -- What was locked stays with its lost worker and comes back with the next sweep.
    perform redrive.end_claims_v1(lost_ids);
    delete from redrive.workers w
    where w.id = any (lost_ids)
      and not exists (select from redrive.claims k where k.worker = w.id)
      and not exists (select from redrive.marked_v1(array[w.id]));
end
$$;

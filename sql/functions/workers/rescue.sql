-- rescue: take jobs back from workers whose heartbeat stopped, and settle them as lost.
-- in:    ttl: for workers that said none of their own
--        max_losses: a job that lost this many workers is dead-lettered, it may be what kills
--        them
-- out:   counts
-- locks: lost worker rows exclusively (waits for no claim: skip locked), then their jobs, skip
--        locked
-- plan:  a scan of the live table, once per lost worker: that is the price of not indexing
--        `worker`, paid per crash and not per job. With nobody lost it ends after one look at a
--        table of a few dozen rows.
create or replace function redrive.rescue_v1(
    ttl interval, max_losses int, out lost int, out rescued int, out buried int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    lost_ids int[];
    held record;
begin
    -- Marking first closes the race with a claim: it holds its worker row for key share and looks
    -- at lost_at again. A worker has done so already, by itself; the release before has not.
    perform redrive.mark_lost_v1(ttl);
    select array_agg(s.id) into lost_ids
    from (select w.id from redrive.workers w where w.lost_at is not null for update skip locked) s;
    lost := coalesce(cardinality(lost_ids), 0); rescued := 0; buried := 0;
    if lost = 0 then
        return;
    end if;
    select array_agg(h.id) as ids, array_agg(h.worker) as workers,
           array_agg(h.deliveries) as deliveries,
           array_agg(case when h.spent then 'dead' else 'rescue' end) as outcomes,
           array_agg(case when h.spent then 'killed_worker' else 'worker_lost' end) as reasons,
           count(*)::int as n
    into held
    from (
        select j.id, j.worker, j.deliveries, j.losses + 1 >= max_losses as spent
        from redrive.jobs j
        where j.worker = any (lost_ids)
        order by j.id
        -- a handler of a paused worker may hold one in its own transaction
        for update skip locked) h;
    select count(*) filter (where o.outcome = 'rescue'), count(*) filter (where o.outcome = 'dead')
    into rescued, buried
    from redrive.settle_v1(
        held.workers, held.ids, held.deliveries, held.outcomes,
        array_fill(null::timestamptz, array[held.n]), array_fill(0::float8, array[held.n]),
        array_fill(false, array[held.n]), array_fill(1, array[held.n]),
        array_fill(jsonb_build_object(
            'error_class', 'WorkerLost',
            'message', 'the worker stopped beating while it held the job',
            'category', 'lost', 'fingerprint', 'worker-lost'), array[held.n]),
        held.reasons) s(id)
    join unnest(held.ids, held.outcomes) o(id, outcome) on o.id = s.id;
    -- What was locked stays with its lost worker and comes back with the next sweep.
    delete from redrive.workers w
    where w.id = any (lost_ids) and not exists (select from redrive.jobs j where j.worker = w.id);
end
$$;

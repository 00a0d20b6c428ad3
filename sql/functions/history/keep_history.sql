-- keep_history: copy jobs that end now to the history, if their queues keep one.
-- It is called before the jobs are deleted. The caller checks the ownership.
-- in:    parallel arrays; workers and deliveries: null for jobs that no worker has claimed
--        at: now, to the microsecond
-- out:   the ids that were copied; null: none
-- plan:  jobs_pkey, history_queues_pkey
create or replace function redrive.keep_history_v1(
    state text, workers int[], ids bigint[], deliveries int[], at timestamptz) returns bigint[]
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
    with kept as (
        insert into redrive.history (
            drop_on, id, state, queue, kind, attempt, deliveries, redrives, priority, created_at,
            run_at, ended_at, worker, idempotency_key, ordering_key, tenant, headers, payload)
        select (at at time zone 'UTC')::date + q.days + 1, j.id,
               keep_history_v1.state, j.queue, j.kind,
               j.attempt + coalesce(v.deliveries - j.deliveries, 0),
               coalesce(v.deliveries, j.deliveries), j.redrives, j.priority, j.created_at,
               j.run_at, at, w.name, j.idempotency_key, j.ordering_key, j.tenant, j.headers, j.payload
        from unnest(keep_history_v1.workers, keep_history_v1.ids, keep_history_v1.deliveries)
            as v(worker, id, deliveries)
        join redrive.jobs j on j.id = v.id
        join redrive.history_queues q on q.queue = j.queue
        left join redrive.workers w on w.id = v.worker
        where j.id = any (keep_history_v1.ids)
        returning id)
    select array_agg(k.id) from kept k
$$;

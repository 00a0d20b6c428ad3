-- claimed: read the jobs of a worker's claims, in their order.
-- in:    after: read only claims that were made after this one
-- out:   rest: the fields that few jobs have, or null if there are none
--        created: when the job was enqueued, in seconds since 1970, to the microsecond
-- The caller turns payloads into text. Rows are collected here until the last one is read, and
-- until then large payloads stay compressed or in the TOAST table.
-- plan:  claims_worker_idx, jobs_pkey, failures_pkey, nested in this order, which is the order of the rows
create or replace function redrive.claimed_v1(me int, after bigint)
returns table (claim bigint, id bigint, deliveries int, attempt int, kind text, payload jsonb,
               rest text, run_at timestamptz, created float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
set work_mem = '32MB'  -- so that the rows of a claim are collected in memory and not in a file
as $$
#variable_conflict use_column
begin
    return query
    select k.id, j.id, j.deliveries + 1, j.attempt + 1, j.kind, j.payload,
           case when j.failed_at is null and j.idempotency_key is null and j.headers = '{}'
                     and j.max_attempts is null and j.expires_at is null and j.losses = 0
                     and j.redrives = 0 and j.tenant is null and j.ordering_key is null
                     and not j.noted then null
                else jsonb_build_object(
                    'max_attempts', j.max_attempts, 'streak', j.streak, 'refunds', j.refunds,
                    'losses', redrive.recent_losses_v1(j.losses, j.failed_at),
                    'fingerprint', j.fingerprint, 'redrives', j.redrives, 'tenant', j.tenant,
                    'headers', j.headers,
                    -- the key of a unique job is left out: a later job may have the same one
                    'idempotency_key', case when j.idempotency_key not like '$unique:%'
                                            then j.idempotency_key end,
                    'ordering_key', j.ordering_key,
                    'checkpoint', case when j.noted or j.redrives > 0 then (
                        select jsonb_build_object('delivery', c.deliveries, 'data', c.data)
                        from redrive.checkpoints c where c.job = j.id) end,
                    -- Producers can write neither this table nor the job's number of redrives.
                    'source', case when j.redrives > 0 then (
                        select i.source from redrive.imports i where i.job = j.id) end,
                    -- no failure is read before the first one since the last redrive
                    'retried_for', case when j.failed_at is not null then (
                        select f.detail -> 'retried_for' from redrive.failures f
                        where f.job = j.id order by f.deliveries desc limit 1) end,
                    'expires_in', extract(epoch from j.expires_at - clock_timestamp()))::text end,
           j.run_at, date_part('epoch', j.created_at)
    from redrive.claims k
    cross join lateral unnest(k.ids) as c(id)
    -- Read each job by its id, whatever the table held at planning time: `offset` prevents a join.
    cross join lateral (select j.* from redrive.jobs j where j.id = c.id offset 0) j
    where k.worker = me and k.id > after;
end
$$;

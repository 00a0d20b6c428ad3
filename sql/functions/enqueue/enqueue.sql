-- enqueue: add one job, in the caller's transaction.
-- in:    see redrive.enqueue below; run_at null or past = now; expires_in counts from now
-- out:   id, created, outcome: 'enqueued', or for a key already taken the job that has it and
--        'live' or 'succeeded'
-- errors: RD001 'field: rule' for anything a job cannot hold; 40001 where the transaction's snapshot
--        is older than what became of the key
create or replace function redrive.enqueue_v1(
    kind text, payload jsonb, queue text, run_at timestamptz, priority int, max_attempts int,
    idempotency_key text, ordering_key text, tenant text, expires_in interval, headers jsonb,
    out id bigint, out created boolean, out outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    fault text;
    due constant timestamptz := greatest(run_at, clock_timestamp());
    tenant_lane smallint := 0;
    added bigint;
begin
    -- What can be stored at all is judged by admit; here is what would not get that far.
    fault := case
        when kind is null then 'kind: must match ^[a-z][a-z0-9_.-]{0,62}$'
        when queue is null then 'queue: must match ^[a-z][a-z0-9_.-]{0,62}$'
        when payload is null then 'payload: must be an object, not null'
        when headers is null then 'headers: must be an object'
        when priority is null or priority not between -1000 and 1000
            then 'priority: must lie between -1000 and 1000'
        when due = 'infinity' or run_at < '2000-01-01 00:00:00+00'
            then 'run_at: must lie between the years 2000 and 9999'
        when length(idempotency_key) > 255 then 'idempotency_key: must have 1 to 255 characters'
        when length(ordering_key) > 255 then 'ordering_key: must have 1 to 255 characters'
        when expires_in not between interval '1 ms' and interval '100 years'
            then 'expires_in: must lie between 1 ms and 100 years' end;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;

    if tenant is not null then
        -- lane 0 has what waited before the queue was fair, and what has no tenant
        select 1 + abs(hashtext(tenant)::bigint) % q.lanes into tenant_lane from redrive.queues q
        where q.queue = enqueue_v1.queue and q.lanes > 1;
        tenant_lane := coalesce(tenant_lane, 0);
    end if;
    loop
        insert into redrive.jobs as j (
            kind, payload, queue, run_at, priority, lane, max_attempts, idempotency_key,
            ordering_key, tenant, expires_at, headers)
        values (kind, payload, queue, due, priority, tenant_lane, max_attempts, idempotency_key,
                ordering_key, tenant, clock_timestamp() + expires_in, headers)
        on conflict (kind, idempotency_key) where idempotency_key is not null do nothing
        returning j.id into added;
        if found and idempotency_key is null then
            id := added; created := true; outcome := 'enqueued';
            return;
        end if;
        if found then
            -- The key may have succeeded between two snapshots: the insert above waited for the job
            -- that held it, so what that job's completion wrote is visible to this statement.
            select c.job into id from redrive.completions c
            where c.kind = enqueue_v1.kind and c.key = idempotency_key;
            if not found then
                perform redrive.refuse_unseen_v1(array[kind], array[idempotency_key]);
                id := added; created := true; outcome := 'enqueued';
                return;
            end if;
            delete from redrive.jobs j where j.id = added;
            insert into redrive.deltas (queue, kind, event, n) values (queue, kind, 'enqueued', -1);
            created := false; outcome := 'succeeded';
            return;
        end if;
        select j.id, false, 'live' into id, created, outcome from redrive.jobs j
        where j.kind = enqueue_v1.kind and j.idempotency_key = enqueue_v1.idempotency_key;
        if found then
            return;
        end if;
        -- The holder ended between the two statements: look again.
        select c.job, false, 'succeeded' into id, created, outcome from redrive.completions c
        where c.kind = enqueue_v1.kind and c.key = idempotency_key;
        if found then
            return;
        end if;
    end loop;
end
$$;

-- For those who write SQL themselves: the same with defaults. Its signature is part of the
-- interface.
create or replace function redrive.enqueue(
    kind text, payload jsonb default '{}', queue text default 'default',
    run_at timestamptz default null, priority int default 0, max_attempts int default null,
    idempotency_key text default null, ordering_key text default null, tenant text default null,
    expires_in interval default null, headers jsonb default '{}')
returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select id from redrive.enqueue_v1(
        kind, payload, queue, run_at, priority, max_attempts, idempotency_key, ordering_key, tenant,
        expires_in, headers)
$$;

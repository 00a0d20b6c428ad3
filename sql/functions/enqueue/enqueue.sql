-- enqueue: add one job in the caller's transaction.
-- in:    see redrive.enqueue below; run_at: null or past: now; expires_in and delay count from now
--        unique_for: makes a key from the payload, or from its fields unique_by
--        on_conflict: what to do if that key is taken; null: skip
-- out:   id, created, outcome: 'enqueued'; or, if the key is taken, the id of the job that has it
--        and 'live', 'succeeded' or 'replaced'
-- errors: RD001 'field: rule' for anything that a job cannot hold; 40001 if the transaction's
--        snapshot is older than a change to the key
create or replace function redrive.enqueue_v1(
    kind text, payload jsonb, queue text, run_at timestamptz, priority int, max_attempts int,
    idempotency_key text, ordering_key text, tenant text, expires_in interval, headers jsonb,
    delay interval, unique_for interval, unique_by text[], on_conflict text, batch bigint,
    out id bigint, out created boolean, out outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    fault text;
    due constant timestamptz := greatest(run_at, clock_timestamp() + case
        when delay between interval '0' and interval '100 years' then delay else '0' end);
    window_start timestamptz;    -- a unique job that was enqueued before this time does not count
    tenant_lane smallint := 0;
    added bigint;
begin
    -- admit checks what can be stored. Check here what would not get that far.
    fault := case
        when kind is null then 'kind: must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
        when queue is null then 'queue: must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
        when payload is null then 'payload: must be an object, not null'
        when headers is null then 'headers: must be an object'
        when priority is null or priority not between -1000 and 1000
            then 'priority: must lie between -1000 and 1000'
        when due = 'infinity' or run_at < '2000-01-01 00:00:00+00'
            then 'run_at: must lie between the years 2000 and 9999'
        when length(idempotency_key) > 255 then 'idempotency_key: must have 1 to 255 characters'
        when idempotency_key like '$unique:%' then 'idempotency_key: must not begin with $unique:'
        when length(ordering_key) > 255 then 'ordering_key: must have 1 to 255 characters'
        when expires_in not between interval '1 ms' and interval '100 years'
            then 'expires_in: must lie between 1 ms and 100 years' end;
    if fault is null and num_nonnulls(delay, unique_for, unique_by, on_conflict) > 0 then
        fault := redrive.unique_fault_v1(payload, run_at, idempotency_key, delay, unique_for,
                                         unique_by, on_conflict, batch);
        if unique_for is not null and fault is null then
            idempotency_key := redrive.unique_key_v1(
                queue, tenant, ordering_key, payload, unique_by);
            window_start := case when on_conflict = 'replace' then 'infinity'
                                 else clock_timestamp() - unique_for end;
        end if;
    end if;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;

    if tenant is not null then
        -- lane 0 holds jobs without a tenant, and jobs from before the queue had lanes
        select 1 + abs(hashtext(tenant)::bigint) % q.lanes into tenant_lane from redrive.queues q
        where q.queue = enqueue_v1.queue and q.lanes > 1;
        tenant_lane := coalesce(tenant_lane, 0);
    end if;
    loop
        insert into redrive.jobs as j (
            kind, payload, queue, run_at, priority, lane, max_attempts, idempotency_key,
            ordering_key, tenant, expires_at, headers, batch)
        values (kind, payload, queue, due, priority, tenant_lane, max_attempts, idempotency_key,
                ordering_key, tenant, clock_timestamp() + expires_in, headers, batch)
        on conflict (kind, idempotency_key) where idempotency_key is not null do nothing
        returning j.id into added;
        if found and idempotency_key is null then
            id := added; created := true; outcome := 'enqueued';
            return;
        end if;
        if found then
            -- The key may have succeeded between two snapshots. The insert above waited for the job
            -- that held it, so this statement sees what that job's completion wrote.
            if window_start is not null then
                -- A dead letter from before keeps its own memory that this work was done.
                with gone as (
                    delete from redrive.completions c
                    where c.kind = enqueue_v1.kind and c.key = idempotency_key
                      and c.enqueued_at <= window_start
                    returning c.kind, c.key, c.job)
                insert into redrive.completions (kind, key, job)
                select g.kind, '$unique:done:' || d.id, g.job
                from gone g
                join redrive.dead_letters d on d.kind = g.kind and d.idempotency_key = g.key
                where d.state in ('open', 'dismissed')
                on conflict do nothing;
            end if;
            select c.job into id from redrive.completions c
            where c.kind = enqueue_v1.kind and c.key = idempotency_key;
            if not found then
                perform redrive.refuse_unseen_v1(array[kind], array[idempotency_key]);
                id := added; created := true; outcome := 'enqueued';
                return;
            end if;
            delete from redrive.jobs j where j.id = added;
            delete from redrive.limit_waits w where w.job = added;
            insert into redrive.deltas (queue, kind, event, n) values (queue, kind, 'enqueued', -1);
            insert into redrive.batch_deltas (batch, total) select batch, -1 where batch is not null;
            created := false; outcome := 'succeeded';
            return;
        end if;
        select j.id, false, 'live' into id, created, outcome from redrive.jobs j
        where j.kind = enqueue_v1.kind and j.idempotency_key = enqueue_v1.idempotency_key;
        if found then
            if on_conflict = 'replace' then
                outcome := 'replaced';
                perform redrive.replace_at_commit_v1(id, jsonb_build_object(
                    'kind', kind, 'payload', payload, 'queue', queue, 'priority', priority,
                    'run_at', due, 'max_attempts', max_attempts, 'ordering_key', ordering_key,
                    'tenant', tenant, 'expires_in', extract(epoch from expires_in),
                    'headers', headers, 'unique_for', extract(epoch from unique_for),
                    'unique_by', to_jsonb(unique_by), 'on_conflict', on_conflict));
            end if;
            return;
        end if;
        -- The holder of the key ended between the two statements: try again.
    end loop;
end
$$;

-- The same with defaults, for SQL written by hand. Its signature is part of the interface.
create or replace function redrive.enqueue(
    kind text, payload jsonb default '{}', queue text default 'default',
    run_at timestamptz default null, priority int default 0, max_attempts int default null,
    idempotency_key text default null, ordering_key text default null, tenant text default null,
    expires_in interval default null, headers jsonb default '{}', delay interval default null,
    unique_for interval default null, unique_by text[] default null,
    on_conflict text default null, batch bigint default null)
returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select id from redrive.enqueue_v1(
        kind, payload, queue, run_at, priority, max_attempts, idempotency_key, ordering_key, tenant,
        expires_in, headers, delay, unique_for, unique_by, on_conflict, batch)
$$;

-- admit: what happens beside every insert into jobs, however it was made (enqueue, COPY, redrive).
-- Refuses what a job cannot hold (RD001 'field: rule', never the value), names for which there is
-- no room and encrypted payloads that came in before, counts what came, and wakes the workers of the
-- queues that jobs came to, once in a transaction and once in 20 ms of all of them: NOTIFY takes a
-- lock of the whole database until after commit, and polling is the truth. What a transaction told
-- that never commits, or commits late, is found by polling as well. One that is to be prepared
-- (PREPARE TRANSACTION) may not notify: set local redrive.notify = off.
create or replace function redrive.admit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    fault text;
    doubtful boolean;
    is_new boolean;              -- whether a name may be: of a redrive none is
    is_sealed boolean;           -- whether one is encrypted
    is_late boolean;             -- whether one was due long ago
    is_batched boolean;          -- whether one is of a batch
    is_any_limited boolean;      -- whether there are limits of kinds
    slots int;                   -- of the queues that jobs came to
    already int;                 -- the slots that this transaction told
    lately bigint;               -- in which 20 ms somebody was told last, and 16 bits: of what
    earliest constant timestamptz := now() - interval '1 minute';
    tick constant bigint := floor(date_part('epoch', clock_timestamp()) * 50);
begin
    -- One pass counts and doubts; only what is doubtful is asked for its fault. A name is looked up
    -- once per group, and judged when it is new.
    with came as materialized (
        select queue, kind, count(*) filter (where redrives = 0) as n,
               min(priority) as low, max(priority) as high,
               bool_or(run_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                       or expires_at not between '2000-01-01 00:00:00+00'
                                             and '9999-12-31 00:00:00+00'
                       or priority not between -1000 and 1000
                       or max_attempts not between 1 and 100000
                       or length(idempotency_key) not between 1 and 255
                       or length(tenant) not between 1 and 255
                       or length(ordering_key) not between 1 and 255
                       or jsonb_typeof(headers) <> 'object'
                       or pg_column_size(headers) > 8 and octet_length(headers::text) > 8192
                       or jsonb_typeof(payload) <> 'object'
                       or octet_length(payload::text) >= 130) as doubtful,
               bool_or(pg_column_size(headers) > 8 and headers ? '$redrive') as sealed,
               bool_or(run_at < earliest) as late, bool_or(batch is not null) as batched
        from fresh group by queue, kind),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select queue, kind, 'enqueued', n from came where n > 0)
    select bool_or(c.doubtful),
           bool_or(c.n > 0 and (c.low <> c.high or (
               select true from redrive.names n
               where n.queue = c.queue and n.kind = c.kind and n.priority = c.low
               limit 1) is null)),
           bit_or(redrive.wake_slot_v1(queue)),
           bool_or(c.n > 0 and c.sealed), bool_or(c.late), bool_or(c.batched),
           exists (select from redrive.kind_limits)
    into doubtful, is_new, slots, is_sealed, is_late, is_batched, is_any_limited from came c;
    if doubtful then
        select f.fault into fault
        from (
            select case
                when run_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                     and not (run_at = 'infinity' and ordering_key is not null)
                    then 'run_at: must lie between the years 2000 and 9999'
                when expires_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                    then 'expires_in: must end between the years 2000 and 9999'
                when priority not between -1000 and 1000
                    then 'priority: must lie between -1000 and 1000'
                when max_attempts not between 1 and 100000
                    then 'max_attempts: must lie between 1 and 100000'
                when length(idempotency_key) not between 1 and 255
                    then 'idempotency_key: must have 1 to 255 characters'
                when length(ordering_key) not between 1 and 255
                    then 'ordering_key: must have 1 to 255 characters'
                when length(tenant) not between 1 and 255
                    then 'tenant: must have 1 to 255 characters'
                when jsonb_typeof(headers) <> 'object' then 'headers: must be an object'
                when octet_length(headers::text) > 8192 then 'headers: at most 8192 bytes'
                else redrive.payload_fault(payload) end as fault
            from fresh) f
        where f.fault is not null
        limit 1;
    end if;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    if is_new then
        perform redrive.admit_names_v1(
            array_agg(f.queue), array_agg(f.kind), array_agg(f.priority))
        from (select distinct queue, kind, priority from fresh where redrives = 0) f;
    end if;
    if is_sealed then
        perform redrive.admit_envelopes_v1(array_agg(f.headers ->> '$redrive'))
        from fresh f where f.redrives = 0 and f.headers ? '$redrive';
    end if;
    if is_batched then
        perform redrive.join_batch_v1(array_agg(f.batch), array_agg(f.redrives > 0))
        from fresh f where f.batch is not null;
    end if;
    if is_any_limited then
        perform redrive.park_limited_v1(array_agg(f.id)) from fresh f
        where redrive.handles_v1(array(select k.kind from redrive.kind_limits k), f.kind)
        having count(*) > 0;
    end if;
    -- Nobody who may only enqueue passes those who wait: what is overdue came now, as for enqueue.
    if is_late and not has_table_privilege(session_user, 'redrive.jobs', 'insert') then
        update redrive.jobs j set run_at = clock_timestamp()
        from fresh f where j.id = f.id and f.run_at < earliest;
    end if;
    -- A bulk load in one transaction must not keep others silent: it is told of once, at its commit.
    already := coalesce(nullif(current_setting('redrive.told', true), ''), '0')::int;
    lately := coalesce(pg_sequence_last_value('redrive.notified'::regclass), 0);
    if lately >> 16 <> tick then
        lately := tick << 16;
    end if;
    slots := slots & ~already & ~(lately & 65535)::int;
    if slots <> 0 and current_setting('redrive.notify', true) is distinct from 'off' then
        perform set_config('redrive.told', (already | slots)::text, true),
                setval('redrive.notified', lately | slots),
                pg_notify('redrive', slots::text);
    end if;
    return null;
end
$$;

create or replace trigger jobs_admitted after insert on redrive.jobs
    referencing new table as fresh for each statement execute function redrive.admit();

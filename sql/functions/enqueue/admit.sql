-- admit: check, count and announce each insert into jobs, however it is made (enqueue, COPY,
-- redrive).
-- It refuses what a job cannot hold (RD001 'field: rule', never the value). It also refuses names
-- for which there is no room, and encrypted payloads that came in before. It counts the new jobs.
-- It wakes the workers of their queues, once in a transaction, and once in 20 ms for all
-- transactions. NOTIFY takes a lock of the whole database until after commit, and workers poll
-- anyway. If a transaction has notified and never commits, or commits late, polling finds the jobs.
-- A transaction that will be prepared (PREPARE TRANSACTION) must not notify: set local
-- redrive.notify = off. If the server allows prepared transactions, each transaction notifies. Then
-- one without that setting is always refused, and not only in some of these 20 ms.
create or replace function redrive.admit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    fault text;
    -- what some of the new jobs are; each is one bit of `traits`
    doubtful constant int := 1;        -- perhaps what a job cannot be
    encrypted constant int := 2;
    due_long_ago constant int := 4;
    in_batch constant int := 8;
    of_new_name constant int := 16;
    maybe_limited constant int := 32;  -- some kinds have limits
    traits int;
    -- A queue has one of 16 slots, and a slot is one bit. So the lower 16 bits of these are a set of
    -- slots, and `a & ~b` is what only a has. A number above 65535 also has a time.
    slots int;                   -- of the queues of the new jobs
    already int;                 -- the slots that this transaction has notified
    -- these 20 ms, above the bits of the slots
    tick constant bigint := floor(date_part('epoch', clock_timestamp()) * 50)::bigint << 16;
    can_prepare constant boolean := current_setting('max_prepared_transactions') <> '0';
    -- the slots notified in this tick: # takes its time away, so above 65535 it is another tick's
    lately bigint;
    earliest constant timestamptz := now() - interval '1 minute';
begin
    -- One pass counts the jobs and flags doubtful ones; only those are checked in full. A name is
    -- looked up once for each group, and checked if it is new. A statement that adds one job pays
    -- more to prepare expressions than to evaluate them. Aggregates and variables cost the most, so
    -- there are few.
    with came as materialized (
        select queue, kind, priority, count(*) filter (where redrives = 0) as n,
               bit_or(case when run_at < earliest then doubtful | due_long_ago else 0 end
                   | case when run_at > '9999-12-31 00:00:00+00'
                               and (run_at < 'infinity' or ordering_key is null)
                          or expires_at not between '2000-01-01 00:00:00+00'
                                                and '9999-12-31 00:00:00+00'
                          or priority not between -1000 and 1000
                          or max_attempts not between 1 and 100000
                          or '' in (idempotency_key, ordering_key, tenant)
                          or greatest(length(idempotency_key), length(ordering_key),
                                      length(tenant)) > 255
                          or not payload @> '{}' or octet_length(payload::text) >= 130
                          then doubtful else 0 end
                   | case when headers = '{}' then 0
                          else case when not headers @> '{}' or octet_length(headers::text) >= 130
                                    then doubtful else 0 end
                               | case when headers ? '$redrive' then encrypted else 0 end end
                   | case when batch is null then 0 else in_batch end) as traits
        from fresh group by queue, kind, priority),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select queue, kind, 'enqueued', n from came where n > 0)
    select bit_or(c.traits | case when c.n > 0 and (
               select true from redrive.names n
               where n.queue = c.queue and n.kind = c.kind and n.priority = c.priority
               limit 1) is null then of_new_name else 0 end)
           | case when exists (select from redrive.kind_limits) then maybe_limited else 0 end,
           bit_or(redrive.wake_slot_v1(queue))
    into traits, slots from came c;
    if traits <> 0 then
        if traits & doubtful <> 0 then
            select f.fault into fault
            from (
                select case
                    when run_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                         and not (run_at = 'infinity' and ordering_key is not null)
                        then 'run_at: must lie between the years 2000 and 9999'
                    when expires_at not between '2000-01-01 00:00:00+00'
                                            and '9999-12-31 00:00:00+00'
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
                    else coalesce(redrive.unfit_headers_v1(headers, redrives),
                                  redrive.payload_fault(payload)) end as fault
                from fresh) f
            where f.fault is not null
            limit 1;
        end if;
        if fault is not null then
            raise exception using errcode = 'RD001', message = fault;
        end if;
        if traits & of_new_name <> 0 then
            perform redrive.admit_names_v1(
                array_agg(f.queue), array_agg(f.kind), array_agg(f.priority))
            from (select distinct queue, kind, priority from fresh where redrives = 0) f;
        end if;
        if traits & encrypted <> 0 then
            perform redrive.admit_envelopes_v1(array_agg(f.headers ->> '$redrive'))
            from fresh f where f.redrives = 0 and f.headers ? '$redrive';
        end if;
        if traits & in_batch <> 0 then
            perform redrive.join_batch_v1(array_agg(f.batch), array_agg(f.redrives > 0))
            from fresh f where f.batch is not null;
        end if;
        if traits & maybe_limited <> 0 then
            perform redrive.park_limited_v1(array_agg(f.id)) from fresh f
            where redrive.handles_v1(array(select k.kind from redrive.kind_limits k), f.kind)
            having count(*) > 0;
        end if;
        -- A role that may only enqueue must not overtake waiting jobs. As in enqueue, an overdue
        -- job counts as due now.
        if traits & due_long_ago <> 0
           and not has_table_privilege(session_user, 'redrive.jobs', 'insert') then
            update redrive.jobs j set run_at = clock_timestamp()
            from fresh f where j.id = f.id and f.run_at < earliest;
        end if;
    end if;
    lately := coalesce(pg_sequence_last_value('redrive.notified'::regclass), 0) # tick;
    if lately > 65535 or can_prepare or slots & ~lately::int <> 0 then
        -- A bulk load in one transaction must not silence others: workers hear of it only at its
        -- commit.
        already := coalesce(nullif(current_setting('redrive.told', true), ''), '0')::int;
        if lately > 65535 or can_prepare then
            lately := 0;
        end if;
        slots := slots & ~already & ~lately::int;
        if slots <> 0 and current_setting('redrive.notify', true) is distinct from 'off' then
            perform set_config('redrive.told', (already | slots)::text, true),
                    setval('redrive.notified', tick | lately | slots),
                    pg_notify('redrive', slots::text);
        end if;
    end if;
    return null;
end
$$;

create or replace trigger jobs_admitted after insert on redrive.jobs
    referencing new table as fresh for each statement execute function redrive.admit();

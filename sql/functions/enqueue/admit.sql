-- admit: what happens beside every insert into jobs, however it was made (enqueue, COPY, redrive).
-- Refuses what a job cannot hold (RD001 'field: rule', never the value), counts what came, and
-- wakes workers at most every 20 ms per session: NOTIFY takes a lock of the whole database until
-- after commit, and polling is the truth.
create or replace function redrive.admit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    fault text;
    doubtful boolean;
    notified constant text := current_setting('redrive.notified_at', true);
begin
    -- One pass counts and doubts; only what is doubtful is asked for its fault. A name is looked at
    -- once per group.
    with came as materialized (
        select queue, kind, count(*) filter (where redrives = 0) as n,
               bool_or(run_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                       or expires_at not between '2000-01-01 00:00:00+00'
                                             and '9999-12-31 00:00:00+00'
                       or priority not between -1000 and 1000
                       or max_attempts not between 1 and 100000
                       or length(idempotency_key) not between 1 and 255
                       or length(tenant) not between 1 and 255
                       or length(ordering_key) not between 1 and 255
                       or jsonb_typeof(headers) <> 'object' or pg_column_size(headers) > 8192
                       or jsonb_typeof(payload) <> 'object'
                       or octet_length(payload::text) >= 130) as doubtful
        from fresh group by queue, kind),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select queue, kind, 'enqueued', n from came where n > 0)
    select bool_or(c.doubtful or kind collate "C" !~ '^[a-z][a-z0-9_.-]{0,62}$'
                   or queue collate "C" !~ '^[a-z][a-z0-9_.-]{0,62}$')
    into doubtful from came c;
    if doubtful then
        select f.fault into fault
        from (
            select case
                when kind collate "C" !~ '^[a-z][a-z0-9_.-]{0,62}$'
                    then 'kind: must match ^[a-z][a-z0-9_.-]{0,62}$'
                when queue collate "C" !~ '^[a-z][a-z0-9_.-]{0,62}$'
                    then 'queue: must match ^[a-z][a-z0-9_.-]{0,62}$'
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
                when pg_column_size(headers) > 8192 then 'headers: at most 8192 bytes'
                else redrive.payload_fault(payload) end as fault
            from fresh) f
        where f.fault is not null
        limit 1;
    end if;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    if coalesce(notified, '') = ''
       or clock_timestamp() > notified::timestamptz + interval '20 ms' then
        perform set_config('redrive.notified_at', clock_timestamp()::text, false);
        notify redrive;
    end if;
    return null;
end
$$;

create or replace trigger jobs_admitted after insert on redrive.jobs
    referencing new table as fresh for each statement execute function redrive.admit();

-- on_insert: what happens beside every insert into jobs, however it was made (enqueue, COPY, redrive).
-- Counts what came, and wakes workers at most every 50 ms per session: NOTIFY takes a lock of the whole
-- database until after commit, and polling is the truth anyway.
create or replace function redrive.count_enqueued() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    notified constant text := current_setting('redrive.notified_at', true);
begin
    insert into redrive.deltas (queue, kind, event, n)
    select queue, kind, 'enqueued', count(*) from fresh where redrives = 0 group by queue, kind;
    if coalesce(notified, '') = '' or clock_timestamp() > notified::timestamptz + interval '50 ms' then
        perform set_config('redrive.notified_at', clock_timestamp()::text, false);
        notify redrive;
    end if;
    return null;
end
$$;

-- A job behind its ordering key waits at infinity, outside every index range a claim reads.
-- An earlier job of the key that is still in an open transaction is not seen here; claim looks again.
create or replace function redrive.park_behind_key() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    if exists (select from redrive.jobs o
               where o.queue = new.queue and o.ordering_key = new.ordering_key and o.id <> new.id) then
        new.run_at := 'infinity';
    end if;
    return new;
end
$$;

create or replace trigger jobs_counted after insert on redrive.jobs
    referencing new table as fresh for each statement execute function redrive.count_enqueued();
create or replace trigger jobs_parked before insert on redrive.jobs
    for each row when (new.ordering_key is not null) execute function redrive.park_behind_key();

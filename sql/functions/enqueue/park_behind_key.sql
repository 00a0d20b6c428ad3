-- park_behind_key: a job behind its ordering key waits at infinity, outside every index range a
-- claim reads. An earlier job of the key that is still in an open transaction is not seen here;
-- claim looks again.
create or replace function redrive.park_behind_key() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    -- From the newest on: those that have ended are the oldest, and an open snapshot keeps them.
    perform from redrive.jobs o
    where o.queue = new.queue and o.ordering_key = new.ordering_key and o.id <> new.id
    order by o.id desc limit 1;
    if found then
        new.run_at := 'infinity';
    end if;
    return new;
end
$$;

create or replace trigger jobs_parked before insert on redrive.jobs
    for each row when (new.ordering_key is not null) execute function redrive.park_behind_key();

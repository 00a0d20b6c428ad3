-- park_behind_key: a job behind its ordering key, or behind a death that holds the key, waits at
-- infinity, outside every index range a claim reads. What comes back to work is before all younger
-- ones. An earlier job of the key that is still in an open transaction is not seen here; claim looks
-- again. And what may be too large is refused before anything of it is written: admit
-- judges all jobs, when they are. One trigger for both: each costs every statement its condition.
create or replace function redrive.park_behind_key() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    fault text;
begin
    if pg_column_size(new.payload) > 262144 or pg_column_size(new.headers) > 8192 then
        -- what died comes back with what was noted in them
        fault := case when octet_length(new.headers::text) > 8192 + 1024 * least(new.redrives, 1)
                      then 'headers: at most 8192 bytes'
                      else redrive.payload_fault(new.payload) end;
        if fault is not null then
            raise exception using errcode = 'RD001', message = fault;
        end if;
    end if;
    if new.ordering_key is null or new.run_at = 'infinity' then
        return new;
    end if;
    -- From the newest on: those that have ended are the oldest, and an open snapshot keeps them.
    -- In this order: one that dies in between is seen to live, or to be dead.
    perform from redrive.jobs o
    where o.queue = new.queue and o.ordering_key = new.ordering_key and o.id < new.id
    order by o.id desc limit 1;
    if not found then
        perform from redrive.dead_letters d  -- as is_key_held, without the cost of a call
        where d.queue = new.queue and d.ordering_key = new.ordering_key
          and d.id < new.id and d.holds_key and d.state = 'open'
        limit 1;
    end if;
    if not found and new.redrives > 0 then
        -- a younger one runs, whose end wakes it
        perform from redrive.running_keys r
        where r.queue = new.queue and r.ordering_key = new.ordering_key;
    end if;
    if found then
        new.run_at := 'infinity';
    end if;
    return new;
end
$$;

-- Of what comes parked, enqueue_many has looked already; of all while it says so, and a claim looks
-- again, whoever else may say so.
create or replace trigger jobs_parked before insert on redrive.jobs
    for each row when (new.ordering_key is not null
                       and new.run_at <> 'infinity'::timestamp with time zone
                       and current_setting('redrive.looked'::text, true) is distinct from 'on'::text
                       or pg_column_size(new.payload) > 262144
                       or pg_column_size(new.headers) > 8192)
    execute function redrive.park_behind_key();

-- park_behind_key: park a new job behind its ordering key, and refuse oversized jobs early.
-- A job behind an earlier job of its key, or behind a dead letter that holds the key, waits: its
-- run_at is infinity, which no claim reads. A redriven job goes before all younger jobs. An earlier
-- job of the key in an open transaction is not visible here, so claim checks again. A job that may
-- be too large is refused before any of it is written; admit checks all jobs after the insert.
-- This is one trigger for both, because the condition of each trigger costs every statement.
create or replace function redrive.park_behind_key() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    fault text;
    hot redrive.hot_keys;
begin
    if pg_column_size(new.payload) > 262144 or pg_column_size(new.headers) > 8192 then
        -- a redriven job returns with the headers that were added when it ran
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
    -- Search from the newest job back: the ended ones are the oldest, and an open snapshot keeps
    -- their rows. Look at jobs first and dead letters second: then a job that dies in between is
    -- seen alive or dead.
    select h.* into hot from redrive.hot_keys h
    where h.queue = new.queue and h.ordering_key = new.ordering_key;
    perform from redrive.jobs o
    where o.queue = new.queue and o.ordering_key = new.ordering_key and o.id < new.id
      and o.id >= coalesce(hot.jobs_from, 0)
    order by o.id desc limit 1;
    if not found then
        perform from redrive.dead_letters d  -- as is_key_held, without the cost of a call
        where d.queue = new.queue and d.ordering_key = new.ordering_key
          and d.id < new.id and d.holds_key and d.state = 'open'
        limit 1;
    end if;
    if not found and new.redrives > 0 then
        -- a younger job of the key runs, and its end wakes this one
        perform from redrive.running_keys r
        where r.queue = new.queue and r.ordering_key = new.ordering_key
          and r.generation = coalesce(hot.generation, 0);
    end if;
    if found then
        new.run_at := 'infinity';
    end if;
    if new.id < hot.next_from then
        -- A redriven job. No claim takes a job of the key until this transaction ends.
        update redrive.hot_keys h
        set jobs_from = least(h.jobs_from, new.id), next_from = least(h.next_from, new.id)
        where h.queue = new.queue and h.ordering_key = new.ordering_key;
    end if;
    return new;
end
$$;

-- enqueue_many has already checked the jobs that it inserts parked. While redrive.looked is on, it
-- has checked all of its jobs. A claim checks again, so it does no harm if another session sets
-- this.
create or replace trigger jobs_parked before insert on redrive.jobs
    for each row when (new.ordering_key is not null
                       and new.run_at <> 'infinity'::timestamp with time zone
                       and current_setting('redrive.looked'::text, true) is distinct from 'on'::text
                       or pg_column_size(new.payload) > 262144
                       or pg_column_size(new.headers) > 8192)
    execute function redrive.park_behind_key();

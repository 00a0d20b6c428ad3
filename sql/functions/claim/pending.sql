-- pending: does one of these kinds run, wait, or become due within `horizon`? For a worker that
-- stops when all is done.
create or replace function redrive.pending_v1(only_queues text[], kinds text[], horizon interval)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from redrive.jobs j
        where j.run_at <= clock_timestamp() + horizon
          and (only_queues is null or j.queue = any (only_queues))
          and j.kind = any (kinds)
          and not exists (select from redrive.queues q
                          where q.queue = j.queue and q.paused_at is not null))
        or exists (
            select from redrive.limit_waits w
            where (only_queues is null or w.queue = any (only_queues)) and w.kind = any (kinds)
              and not exists (select from redrive.queues q
                              where q.queue = w.queue and q.paused_at is not null))
$$;

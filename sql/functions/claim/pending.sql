-- pending: return true if a job of these kinds runs, waits, or becomes due within `horizon`.
-- It is also true if a batch with a callback of these kinds may have ended. A worker that stops
-- when all work is done asks this.
-- in:    kinds: as registered, such as mail.* for a prefix
create or replace function redrive.pending_v1(only_queues text[], kinds text[], horizon interval)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select exists (
        select from redrive.jobs j
        where j.run_at <= clock_timestamp() + horizon
          and (only_queues is null or j.queue = any (only_queues))
          and redrive.handles_v1(kinds, j.kind)
          and not exists (select from redrive.queues q
                          where q.queue = j.queue and q.paused_at is not null))
        or exists (
            select from redrive.batch_deltas d
            join redrive.batches b on b.id = d.batch
            join redrive.jobs j on j.id in (b.on_success, b.on_end)
            where not d.is_folded and b.closed_at is not null and b.over_at is null
              and (only_queues is null or j.queue = any (only_queues))
              and redrive.handles_v1(kinds, j.kind))
        or exists (
            select from redrive.limit_waits w
            where (only_queues is null or w.queue = any (only_queues)) and redrive.handles_v1(kinds, w.kind)
              and not exists (select from redrive.queues q
                              where q.queue = w.queue and q.paused_at is not null))
$$;

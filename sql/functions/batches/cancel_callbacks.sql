-- cancel_callbacks: cancel the callbacks of a batch that will never be called.
-- The outcome `cancelled` is kept for as long as keys are kept, so that a caller that waits for a
-- callback can read it.
-- locks: as end_waiting
create or replace function redrive.cancel_callbacks_v1(callbacks bigint[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    insert into redrive.results (job, deliveries, outcome, keep_until)
    select e.id, 0, 'cancelled', clock_timestamp() + t.keep
    from unnest(redrive.end_waiting_v1(array_remove(callbacks, null), false)) as e(id)
    join redrive.retention t on t.what = 'keys'
    on conflict do nothing
$$;

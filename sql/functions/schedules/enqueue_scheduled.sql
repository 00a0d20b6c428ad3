-- enqueue_scheduled: enqueue the job of a schedule, with its name and slot in the headers.
-- in:    key: its idempotency key, or null
create or replace function redrive.enqueue_scheduled_v1(
    declaration bigint, slot timestamptz, key text) returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select e.id
    from redrive.schedule_declarations d,
         redrive.enqueue_v1(
             d.kind, d.payload, d.queue, null, 0, null, key, null, null, null,
             jsonb_build_object(
                 'schedule', d.schedule,
                 'scheduled_for',
                 to_char(slot at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
             null, null, null, null, null) e
    where d.id = declaration
$$;

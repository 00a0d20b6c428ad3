-- pause_schedule: stop firing a schedule until it is resumed; its jobs still run.
-- out:   false: there is no such schedule
create or replace function redrive.pause_schedule_v1(name text, actor text, why text)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with paused as (
        update redrive.schedules s
        set paused_at = coalesce(s.paused_at, clock_timestamp()), paused_by = actor,
            paused_why = why
        where s.name = pause_schedule_v1.name
        returning s.name),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'pause schedule', why, 1, jsonb_build_object('schedule', p.name)
        from paused p)
    select exists (select from paused)
$$;

-- resume_schedule: fire a paused schedule again; slots that came during the pause are skipped.
-- out:   false: it was not paused, or there is no such schedule
create or replace function redrive.resume_schedule_v1(name text, actor text, why text)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with resumed as (
        update redrive.schedules s
        set paused_at = null, paused_by = null, paused_why = null, next_at = null,
            since = clock_timestamp(),
            -- fired by a clock that was ahead; the next slot need not wait for that time
            last_at = case when s.last_at < clock_timestamp() then s.last_at end
        where s.name = resume_schedule_v1.name and s.paused_at is not null
        returning s.name),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'resume schedule', why, 1, jsonb_build_object('schedule', r.name)
        from resumed r)
    select exists (select from resumed)
$$;

-- run_schedule: enqueue the job of a schedule now, besides its slots, even if it is paused.
-- out:   the job; null: there is no such schedule
create or replace function redrive.run_schedule_v1(name text, actor text, why text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    declared bigint;
    job bigint;
begin
    select coalesce(l.id, s.declaration) into declared
    from redrive.schedules s left join redrive.declared_schedules_v1() l on l.schedule = s.name
    where s.name = run_schedule_v1.name;
    if not found then
        return null;
    end if;
    job := redrive.enqueue_scheduled_v1(declared, clock_timestamp(), null);
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'run schedule', why, 1,
            jsonb_build_object('schedule', name, 'ids', jsonb_build_array(job)));
    return job;
end
$$;

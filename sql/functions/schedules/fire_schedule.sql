-- fire_schedule: move a schedule on and enqueue the jobs of its due slots, in one transaction.
-- Only the worker that moves `next_at` from the value that all workers saw fires the slots. Each
-- slot lies between the old `next_at` and the new one. So no slot is ever fired twice, and by this
-- clock none is fired early.
-- in:    expected: next_at as due_schedules returned it
--        slots: the slots to fire, may be empty; next: the first slot after them
-- out:   the jobs; null: another worker was first, or the schedule is paused or declared otherwise
-- locks: the row of the schedule, skip locked: the worker that has locked it fires it
create or replace function redrive.fire_schedule_v1(
    name text, declaration bigint, expected timestamptz, slots timestamptz[], next timestamptz)
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    found_row redrive.schedules;
    slot timestamptz;
    jobs bigint[] := '{}';
begin
    select s.* into found_row from redrive.schedules s
    where s.name = fire_schedule_v1.name and s.paused_at is null
    for update skip locked;
    if not found or found_row.next_at is distinct from expected then
        return null;
    end if;
    -- As in due_schedules: a clock that was ahead fired it. Its key prevents a second job for that
    -- slot.
    if found_row.last_at >= clock_timestamp() + interval '1 minute' then
        found_row.last_at := null;
    end if;
    perform from redrive.declared_schedules_v1() l
    where l.id = fire_schedule_v1.declaration;
    if not found then
        return null;
    end if;
    foreach slot in array slots loop
        -- the clock was set back since, or the worker used its own clock
        if slot > clock_timestamp() then
            return null;
        end if;
        if slot < coalesce(expected, 'infinity') or slot <= found_row.last_at or slot >= next then
            raise exception using errcode = 'RD001',
                message = 'slots: must ascend, start at expected and end before next';
        end if;
        found_row.last_at := slot;
        found_row.last_job := redrive.enqueue_scheduled_v1(
            declaration, slot, 'schedule:' || name || ':' || extract(epoch from slot)::bigint);
        jobs := jobs || found_row.last_job;
    end loop;
    if next <= found_row.last_at then
        raise exception using errcode = 'RD001', message = 'next: must come after the last slot';
    end if;
    if slots <> '{}' then
        -- unlike other chores, because it must be done only once
        perform set_config('synchronous_commit', 'on', true);
    end if;
    update redrive.schedules s
    set declaration = fire_schedule_v1.declaration, next_at = next, last_at = found_row.last_at,
        last_job = found_row.last_job, planned_at = clock_timestamp()
    where s.name = found_row.name;
    return jobs;
end
$$;

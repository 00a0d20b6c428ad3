-- declare_schedules: record all schedules that a worker's code declares.
-- An unchanged declaration changes nothing. Another declaration of a name comes into force
-- (declared_schedules.sql).
-- in:    version: of the application
--        declared: [{name, kind, queue, cron, tz, catch_up, payload} ...]
-- out:   false: the worker was declared lost
-- locks: declarations, skip locked: if one is locked, another worker is declaring it now.
--        Schedules, for key share, in the order of names. forget_schedules skips these, and no
--        worker waits for an operator who pauses one
create or replace function redrive.declare_schedules_v1(
    worker int, version text, declared jsonb) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    ours bigint[];  -- declarations
begin
    -- so that the worker's row is not deleted meanwhile; a heartbeat does not wait for this lock
    perform from redrive.workers w where w.id = worker and w.lost_at is null for key share;
    if not found then
        return false;
    end if;
    -- in the order of names, so that workers that start together never wait in a circle
    with new as (
        insert into redrive.schedule_declarations as d (
            schedule, kind, queue, cron, tz, catch_up, payload, digest)
        select s ->> 'name', s ->> 'kind', s ->> 'queue', s ->> 'cron', s ->> 'tz',
               s ->> 'catch_up', s -> 'payload', sha256(convert_to(s::text, 'UTF8'))
        from jsonb_array_elements(declared) s
        order by s ->> 'name'
        on conflict on constraint schedule_declarations_once do nothing
        returning d.schedule, d.queue, d.kind)
    insert into redrive.marks (what, name, queues, kinds)
    select 'schedule changed', n.schedule, array[n.queue], array[n.kind] from new n
    where exists (select from redrive.schedules s where s.name = n.schedule);
    select coalesce(array_agg(d.id order by d.schedule), '{}') into ours
    from redrive.schedule_declarations d join jsonb_array_elements(declared) s
        on d.schedule = s ->> 'name' and d.digest = sha256(convert_to(s::text, 'UTF8'));
    update redrive.schedule_declarations d set declared_at = clock_timestamp()
    where d.id in (select o.id from redrive.schedule_declarations o where o.id = any (ours)
                   order by o.schedule for no key update skip locked);
    loop
        insert into redrive.schedules (name, declaration)
        select d.schedule, d.id from redrive.schedule_declarations d
        where d.id = any (ours)
          -- `on conflict` alone would wait for a session that is changing the row
          and not exists (select from redrive.schedules s where s.name = d.schedule)
        order by d.schedule
        on conflict (name) do nothing;
        -- so that no schedule is deleted before this declaration is visible
        perform from redrive.schedules s
        where s.name in (
            select d.schedule from redrive.schedule_declarations d where d.id = any (ours))
        order by s.name for key share;
        -- a schedule may have been deleted between the two statements
        exit when not exists (
            select from redrive.schedule_declarations d
            where d.id = any (ours)
              and not exists (select from redrive.schedules s where s.name = d.schedule));
    end loop;
    insert into redrive.schedule_declarers (worker, declaration, version)
    select declare_schedules_v1.worker, o.id, declare_schedules_v1.version from unnest(ours) as o(id)
    on conflict do nothing;
    return true;
end
$$;

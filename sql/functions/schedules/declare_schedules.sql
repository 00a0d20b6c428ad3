-- declare_schedules: a worker says which schedules its code has, all of them. The same as before
-- changes nothing; another declaration of a name comes into force (declared_schedules.sql).
-- in:    version: of the application
--        declared: [{name, kind, queue, cron, tz, catch_up, payload} ...]
-- out:   false: the worker was declared lost
-- locks: declarations, skip locked: another worker is declaring them at this moment. Schedules, for key
--        share, in the order of names: forget_schedules leaves them out, and an operator who pauses one
--        keeps no worker waiting
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
    -- its row cannot go meanwhile; a beat passes
    perform from redrive.workers w where w.id = worker and w.lost_at is null for key share;
    if not found then
        return false;
    end if;
    -- in the order of names: workers that start together wait for each other one way only
    insert into redrive.schedule_declarations as d (
        schedule, kind, queue, cron, tz, catch_up, payload, digest)
    select s ->> 'name', s ->> 'kind', s ->> 'queue', s ->> 'cron', s ->> 'tz', s ->> 'catch_up',
           s -> 'payload', sha256(convert_to(s::text, 'UTF8'))
    from jsonb_array_elements(declared) s
    order by s ->> 'name'
    on conflict on constraint schedule_declarations_once do nothing;
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
          -- `on conflict` alone waits for whoever is changing the row
          and not exists (select from redrive.schedules s where s.name = d.schedule)
        order by d.schedule
        on conflict (name) do nothing;
        -- so that none is forgotten before this can be seen
        perform from redrive.schedules s
        where s.name in (
            select d.schedule from redrive.schedule_declarations d where d.id = any (ours))
        order by s.name for key share;
        -- one may have been forgotten between the two
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

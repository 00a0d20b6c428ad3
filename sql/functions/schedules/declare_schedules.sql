-- declare_schedules: a worker says which schedules its code has, all of them. The same as before
-- changes nothing; another declaration of a name comes into force (declared_schedules.sql).
-- in:    version: of the application
--        declared: [{name, kind, queue, cron, tz, catch_up, payload} ...]
-- out:   false: the worker was declared lost
-- locks: declarations, then schedules, each in the order of names: forget_schedules leaves them out
create or replace function redrive.declare_schedules_v1(
    worker int, version text, declared jsonb) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
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
    on conflict on constraint schedule_declarations_once do update
    set declared_at = excluded.declared_at;
    with ours as materialized (
        select d.id, d.schedule
        from redrive.schedule_declarations d join jsonb_array_elements(declared) s
            on d.schedule = s ->> 'name' and d.digest = sha256(convert_to(s::text, 'UTF8'))),
    known as (
        insert into redrive.schedules (name, declaration)
        select o.schedule, o.id from ours o order by o.schedule
        -- written, so that it is not forgotten before this can be seen
        on conflict (name) do update set name = excluded.name)
    insert into redrive.schedule_declarers (worker, declaration, version)
    select declare_schedules_v1.worker, o.id, declare_schedules_v1.version from ours o
    on conflict do nothing;
    return true;
end
$$;

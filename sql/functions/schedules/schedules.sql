-- schedules: list the schedules with their declaration, next slot and last job, without payloads.
-- out:   state: active, paused, or undeclared: no live worker declares it, so it is not fired
--        versions: of the application, whose live workers declare any form of it
create or replace function redrive.schedules_v1()
returns table (
    name text, kind text, queue text, cron text, tz text, catch_up text, state text,
    next_at timestamptz, last_at timestamptz, last_job bigint, paused_at timestamptz,
    paused_by text, paused_why text, versions text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select s.name, d.kind, d.queue, d.cron, d.tz, d.catch_up,
           case when l.id is null then 'undeclared'
                when s.paused_at is not null then 'paused' else 'active' end,
           case when l.id is not null and s.paused_at is null then s.next_at end,
           s.last_at, s.last_job, s.paused_at, s.paused_by,
           case when redrive.reads_texts_v1() then s.paused_why end,
           array(select distinct r.version
                 from redrive.schedule_declarers r
                 join redrive.schedule_declarations o on o.id = r.declaration
                 join redrive.workers w on w.id = r.worker
                 where o.schedule = s.name and r.version <> ''
                   and redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)
                 order by r.version)
    from redrive.schedules s
    left join redrive.declared_schedules_v1() l on l.schedule = s.name
    join redrive.schedule_declarations d on d.id = coalesce(l.id, s.declaration)
    order by s.name
$$;

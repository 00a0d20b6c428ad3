-- declared_schedules: return the declaration in force of each schedule that a live worker declares.
-- If there are several declarations, the newest one counts: the one that was first seen most
-- recently. During a rollout, a worker of the old version that starts again declares nothing new.
-- So the two versions do not take turns.
create or replace function redrive.declared_schedules_v1()
returns table (
    id bigint, schedule text, kind text, queue text, cron text, tz text, catch_up text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select distinct on (d.schedule)
           d.id, d.schedule, d.kind, d.queue, d.cron, d.tz, d.catch_up
    from redrive.schedule_declarations d
    where exists (select from redrive.schedule_declarers l join redrive.workers w on w.id = l.worker
                  where l.declaration = d.id
                    and redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl))
    order by d.schedule, d.id desc
$$;

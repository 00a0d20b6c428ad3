-- due_schedules: list the schedules that have a due slot or whose next slot must be computed.
-- The caller computes the next slot, and fire_schedule stores it.
-- out:   declaration: the one in force
--        next_at: null: compute it after `after`. It is also null if the server's clock was set
--        back since it was computed, because it may be as far ahead as the clock was
--        as_of: the database's clock, which counts
create or replace function redrive.due_schedules_v1()
returns table (
    name text, declaration bigint, cron text, tz text, catch_up text, expected timestamptz,
    next_at timestamptz, after timestamptz, as_of timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select s.name, d.id, d.cron, d.tz, d.catch_up, s.next_at,
           -- another expression comes at other times
           case when (d.cron, d.tz) = (b.cron, b.tz)
                     and (s.next_at <= n.now or s.planned_at <= n.now) then s.next_at end,
           -- a slot more than a minute ahead was fired by a wrong clock
           greatest(n.now, case when s.last_at < n.now + interval '1 minute' then s.last_at end),
           n.now
    from (select clock_timestamp() as now) n,
         redrive.schedules s
         join redrive.declared_schedules_v1() d on d.schedule = s.name
         join redrive.schedule_declarations b on b.id = s.declaration
    where s.paused_at is null
      and (s.next_at is null or s.next_at <= n.now or s.planned_at > n.now
           or s.planned_at is null or d.id <> s.declaration)
    order by s.next_at nulls first, s.name
$$;

-- due_schedules: the schedules for which something is to be done now: a slot has come, or what is
-- next has to be worked out, by whoever asks; fire_schedule writes it down.
-- out:   declaration: in force
--        next_at: null: to be worked out after `after`. So it is, too, when the server's clock has
--        been set back since it was worked out: it may lie as far ahead as the clock did
--        as_of: the clock that counts, this one's
create or replace function redrive.due_schedules_v1()
returns table (
    name text, declaration bigint, cron text, tz text, catch_up text, expected timestamptz,
    next_at timestamptz, after timestamptz, as_of timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select s.name, d.id, d.cron, d.tz, d.catch_up, s.next_at,
           -- by another expression it comes at other times
           case when (d.cron, d.tz) = (b.cron, b.tz)
                     and (s.next_at <= n.now or s.planned_at <= n.now) then s.next_at end,
           -- a slot that lies a minute ahead was fired by a clock that was wrong
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

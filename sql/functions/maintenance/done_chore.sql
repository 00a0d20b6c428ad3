-- done_chore: record that a CronJob has run, so that a missing run is visible without Kubernetes.
-- A false record would silence an alert. So the audit log records who made it once a day, and also
-- each change of the interval.
-- errors: RD001 'field: rule'; take_chore records the workers' own chores
create or replace function redrive.done_chore_v1(chore text, every interval) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    before redrive.chores;
begin
    if chore not in ('purge', 'redrive') then
        raise exception using errcode = 'RD001', message = 'chore: must be purge or redrive';
    end if;
    if every not between interval '1 s' and interval '31 days' then
        raise exception using errcode = 'RD001',
            message = 'every: must lie between a second and 31 days';
    end if;
    select * into before from redrive.chores c where c.name = chore for update;
    insert into redrive.chores as c (name, ran_at, every, marked_by)
    values (chore, clock_timestamp(), done_chore_v1.every, session_user)
    on conflict (name) do update
    set ran_at = excluded.ran_at, every = coalesce(excluded.every, c.every),
        marked_by = excluded.marked_by;
    if before.ran_at >= date_trunc('day', clock_timestamp())
       and before.marked_by is not distinct from session_user
       and (done_chore_v1.every is null or before.every = done_chore_v1.every) then
        return;
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (session_user, 'done', 'a scheduled run ended', 1,
            jsonb_build_object('chore', chore, 'every', done_chore_v1.every));
end
$$;

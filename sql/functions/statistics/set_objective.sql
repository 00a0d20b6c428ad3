-- set_objective: set a threshold for one queue, or for all others ('*'); null removes the queue's
-- own.
-- locks: the end of the audit log first, as set_retention.sql
create or replace function redrive.set_objective_v1(
    queue text, objective text, value float8, actor text, why text)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'objective', why, 1, jsonb_build_object(
        'queue', set_objective_v1.queue, 'objective', set_objective_v1.objective,
        'value', set_objective_v1.value));
    delete from redrive.objectives o
    where o.queue = set_objective_v1.queue and o.objective = set_objective_v1.objective;
    insert into redrive.objectives (queue, objective, value)
    select set_objective_v1.queue, set_objective_v1.objective, set_objective_v1.value
    where set_objective_v1.value is not null;
$$;

-- set_objective_v2: the same for a kind on a queue, or for all kinds together ('*').
create or replace function redrive.set_objective_v2(
    queue text, kind text, objective text, value float8, actor text, why text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    if kind = '*' and objective not in ('dlq_unacknowledged_age_seconds', 'failed_ratio') then
        perform redrive.set_objective_v1(queue, objective, value, actor, why);
        return;
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'objective', why, 1, jsonb_build_object(
        'queue', set_objective_v2.queue, 'kind', set_objective_v2.kind,
        'objective', set_objective_v2.objective, 'value', set_objective_v2.value));
    delete from redrive.kind_objectives o
    where o.queue = set_objective_v2.queue and o.kind = set_objective_v2.kind
      and o.objective = set_objective_v2.objective;
    insert into redrive.kind_objectives (queue, kind, objective, value)
    select set_objective_v2.queue, set_objective_v2.kind, set_objective_v2.objective,
           set_objective_v2.value
    where set_objective_v2.value is not null;
end
$$;

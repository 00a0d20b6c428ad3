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

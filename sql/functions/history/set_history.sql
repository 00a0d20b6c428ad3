-- set_history: set for how many days a queue keeps its ended jobs; null: it keeps none. Audited.
-- Jobs that are already in the history stay until their day.
create or replace function redrive.set_history_v1(queue text, days int, actor text, why text)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.history_queues as h (queue, days)
    select set_history_v1.queue, set_history_v1.days where set_history_v1.days is not null
    on conflict (queue) do update set days = excluded.days;
    delete from redrive.history_queues h
    where h.queue = set_history_v1.queue and set_history_v1.days is null;
    select redrive.tend_history_v1();
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'set history', why, 1, jsonb_build_object(
        'queue', set_history_v1.queue, 'days', set_history_v1.days))
$$;

-- pause: pause a queue. The next claim finds nothing in it. Jobs that a worker has fetched still run.
create or replace function redrive.pause_v1(queue text, actor text, why text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.queues as q (queue, paused_at, paused_by, paused_why)
    values (queue, clock_timestamp(), actor, why)
    on conflict (queue) do update
    set paused_at = coalesce(q.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
        paused_why = excluded.paused_why;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'pause', why, 1, jsonb_build_object('queue', queue))
$$;

-- pause / resume: claims leave a paused queue alone within about a second; what runs there ends.
create or replace function redrive.pause_v1(queue text, actor text, why text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.queues as q (queue, paused_at, paused_by, paused_why)
    values (queue, clock_timestamp(), actor, why)
    on conflict (queue) do update
    set paused_at = coalesce(q.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
        paused_why = excluded.paused_why;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'pause', why, 1, jsonb_build_object('queue', queue))
$$;

create or replace function redrive.resume_v1(queue text, actor text, why text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with resumed as (
        update redrive.queues q set paused_at = null, paused_by = null, paused_why = null
        where q.queue = resume_v1.queue and q.paused_at is not null
        returning q.queue),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'resume', why, 1, jsonb_build_object('queue', r.queue) from resumed r)
    select exists (select from resumed)
$$;

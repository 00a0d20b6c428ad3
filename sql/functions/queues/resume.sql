-- resume: let claims take from a paused queue again.
-- out:   true if it was paused
create or replace function redrive.resume_v1(queue text, actor text, why text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select redrive.tell_v1(redrive.wake_slot_v1(resume_v1.queue));
    with resumed as (
        update redrive.queues q set paused_at = null, paused_by = null, paused_why = null
        where q.queue = resume_v1.queue and q.paused_at is not null
        returning q.queue),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'resume', why, 1, jsonb_build_object('queue', r.queue) from resumed r)
    select exists (select from resumed)
$$;

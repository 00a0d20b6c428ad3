-- close_campaign: end the record of a redrive in chunks, and store its result. Audited.
-- The number of released jobs is the chunks' own count, whatever the caller passes.
create or replace function redrive.close_campaign_v1(campaign bigint, redriven int, blocked jsonb)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with closed as (
        update redrive.campaigns c set blocked = close_campaign_v1.blocked, state = 'done'
        where c.id = campaign and c.state <> 'done' and c.planned_login is null
          and coalesce(c.db_user, session_user) = session_user
        returning c.id, c.actor, c.why, c.matched, c.redriven, c.blocked)
    insert into redrive.audit (actor, action, why, n, detail)
    select d.actor, 'end redrive', d.why, d.redriven, jsonb_build_object(
        'campaign', d.id, 'matched', d.matched, 'blocked', d.blocked)
    from closed d
$$;

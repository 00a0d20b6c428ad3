-- interrupt_campaigns: end campaigns whose client has released no chunk for ten minutes.
-- Released jobs stay counted, and all other dead letters stay where they are. A client that was
-- only slow continues, and closes the campaign as usual.
-- out:   how many campaigns were ended
-- plan:  campaigns_running_idx
create or replace function redrive.interrupt_campaigns_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with pick as materialized (
        select c.id from redrive.campaigns c
        where c.state = 'running' and c.planned_login is null
          and c.active_at < clock_timestamp() - interval '10 minutes'
        order by c.active_at limit batch for update skip locked),
    ended as (
        update redrive.campaigns c set state = 'interrupted' from pick p where c.id = p.id
        returning c.id, c.actor, c.matched, c.redriven),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select 'redrive', 'interrupt campaign', 'nobody has carried it on for ten minutes',
               e.redriven, jsonb_build_object('campaign', e.id, 'matched', e.matched)
        from ended e)
    select count(*)::int from ended
$$;

-- live_campaigns: list the campaigns that are not over or that still have jobs in flight.
-- plan:  campaigns_live_idx
create or replace function redrive.live_campaigns_v1() returns setof bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select c.id from redrive.campaigns c
    where c.planned_login is not null
      and (c.state in ('waiting', 'canary', 'ramp', 'running')
           or c.redriven > c.succeeded + c.dead_again + c.cancelled)
    order by c.id
$$;

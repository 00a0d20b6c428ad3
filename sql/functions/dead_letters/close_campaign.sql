-- close_campaign: end the record around the chunks of a redrive with what came of it.
create or replace function redrive.close_campaign_v1(campaign bigint, redriven int, blocked jsonb)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    update redrive.campaigns c
    set redriven = close_campaign_v1.redriven, blocked = close_campaign_v1.blocked, state = 'done'
    where c.id = campaign
$$;

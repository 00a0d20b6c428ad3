-- pause_campaign: release no more jobs until the campaign is resumed. Audited.
-- Jobs that were released before still run.
-- errors: RD001 'campaign ID: rule'
create or replace function redrive.pause_campaign_v1(campaign bigint, actor text, why text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    update redrive.campaigns c
    set state = 'paused', said = pause_campaign_v1.why, step = c.step + 1
    where c.id = campaign and c.planned_login is not null
      and c.state in ('waiting', 'canary', 'ramp', 'running');
    if not found then
        raise exception using errcode = 'RD001', message = format(
            'campaign %s is %s; only a running campaign can be paused', campaign,
            coalesce((select c.state from redrive.campaigns c where c.id = campaign), 'not found'));
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (pause_campaign_v1.actor, 'pause redrive', pause_campaign_v1.why, 1,
            jsonb_build_object('campaign', campaign));
end
$$;

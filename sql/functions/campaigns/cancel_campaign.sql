-- cancel_campaign: end a campaign, and take back the released jobs that no worker has begun.
-- Jobs that are running or were tried end as usual and are still counted. Audited.
-- out:   how many jobs were taken back
-- errors: RD001 'campaign ID: rule'
-- locks: the campaign, then as take_back
create or replace function redrive.cancel_campaign_v1(campaign bigint, actor text, why text)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    c redrive.campaigns;
    taken bigint[];
begin
    select * into c from redrive.campaigns o where o.id = cancel_campaign_v1.campaign for update;
    if c.planned_login is null
       or c.state not in ('planned', 'waiting', 'canary', 'ramp', 'running', 'paused', 'aborted')
    then
        raise exception using errcode = 'RD001', message = format(
            'campaign %s is %s; only a campaign that has not ended can be cancelled',
            cancel_campaign_v1.campaign, coalesce(c.state, 'not found'));
    end if;
    taken := redrive.take_back_v1(c.id, array(
        select j.id from redrive.campaign_jobs j
        where j.campaign = c.id and j.state = 'redriven'));
    update redrive.campaign_jobs j set state = 'cancelled'
    where j.campaign = c.id and j.state = 'redriven' and j.id = any (taken);
    update redrive.campaigns o
    set state = 'cancelled', said = cancel_campaign_v1.why, step = o.step + 1,
        ended_at = clock_timestamp(), cancelled = o.cancelled + cardinality(taken)
    where o.id = c.id;
    insert into redrive.audit (actor, action, why, n, detail)
    values (cancel_campaign_v1.actor, 'cancel redrive', cancel_campaign_v1.why, c.matched - c.place,
            jsonb_build_object('campaign', c.id, 'taken_back', cardinality(taken)));
    return cardinality(taken);
end
$$;

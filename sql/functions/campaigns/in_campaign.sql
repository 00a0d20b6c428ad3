-- in_campaign: return which of these open dead letters a live campaign has yet to release.
-- A dead letter of a paused or aborted campaign may be edited before the campaign is resumed, so it
-- is not returned.
-- plan:  campaigns_live_idx, campaign_jobs_pkey from where each is, dead_letters_pkey
create or replace function redrive.in_campaign_v1(ids bigint[])
returns table (id bigint, campaign bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select o.id, min(c.id)
    from redrive.campaigns c
    -- Begin with the live campaigns, because most rows of campaign_jobs belong to campaigns that
    -- are over.
    cross join lateral (
        select j.id, j.redrives from redrive.campaign_jobs j
        where j.campaign = c.id and j.n > c.place and j.state is null and j.id = any (ids)
        offset 0) o
    join redrive.dead_letters d on d.id = o.id and d.redrives = o.redrives and d.state = 'open'
    where c.planned_login is not null and c.state in ('waiting', 'canary', 'ramp', 'running')
    group by o.id
$$;

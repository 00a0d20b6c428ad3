-- in_campaign: which of these open dead letters have yet to have their turn in a campaign that goes
-- on. What one that is paused, or has aborted, has not put back may be edited before it is resumed.
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
    -- for each that goes on, and not first: most rows are of campaigns that are over
    cross join lateral (
        select j.id, j.redrives from redrive.campaign_jobs j
        where j.campaign = c.id and j.n > c.place and j.state is null and j.id = any (ids)
        offset 0) o
    join redrive.dead_letters d on d.id = o.id and d.redrives = o.redrives and d.state = 'open'
    where c.planned_login is not null and c.state in ('waiting', 'canary', 'ramp', 'running')
    group by o.id
$$;

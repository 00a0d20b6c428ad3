-- forget_campaigns: delete ended campaigns past their retention that have no dead letters left.
-- Each call is one step of a walk over all campaigns. At its end it waits for the walks of the
-- other tables.
-- Plans that were not started for a day are deleted first. Their frozen lists are deleted from the
-- beginning, because start_campaign checks whether the first row is still there.
-- in:    batch: how many campaigns to look at, and 20 times as many rows of a frozen list
-- locks: the deleted plan, skip locked: the session that has locked it may be starting it
-- plan:  campaigns_pkey, dead_letters_campaign_idx, campaigns_planned_idx
create or replace function redrive.forget_campaigns_v1(older_than interval, batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    old bigint;
    looked bigint[];
    gone int;
    unlisted int;
begin
    select c.id into old from redrive.campaigns c
    where c.state = 'planned' and c.created_at < clock_timestamp() - interval '1 day'
    order by c.created_at limit 1 for update skip locked;
    delete from redrive.campaign_jobs j
    where j.campaign = old and j.n in (
        select o.n from redrive.campaign_jobs o where o.campaign = old order by o.n limit 20 * batch);
    get diagnostics unlisted = row_count;
    delete from redrive.campaigns c
    where c.state = 'planned' and c.created_at < clock_timestamp() - interval '1 day'
      and not exists (select from redrive.campaign_jobs j where j.campaign = c.id);
    select array(select c.id from redrive.campaigns c where c.id > h.place
                 order by c.id limit batch)
    into looked
    from redrive.chores h where h.name = 'forget_campaigns' and h.place >= 0;
    delete from redrive.campaigns c
    where c.id = any (looked) and c.state in ('done', 'cancelled', 'aborted')
      and c.created_at < clock_timestamp() - older_than
      and not exists (select from redrive.dead_letters d where d.campaign = c.id);
    get diagnostics gone = row_count;
    delete from redrive.campaign_jobs j
    where j.campaign = any (looked)
      and not exists (select from redrive.campaigns c where c.id = j.campaign);
    update redrive.chores h
    set place = case when cardinality(looked) = batch then looked[batch] else -1 end
    where h.name = 'forget_campaigns' and h.place >= 0;
    return gone + (unlisted + 19) / 20;
end
$$;

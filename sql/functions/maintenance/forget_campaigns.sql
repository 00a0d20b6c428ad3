-- forget_campaigns: delete ended campaigns past their retention that have no dead letters left.
-- Each call is one step of a walk over all campaigns. At its end it waits for the walks of the
-- other tables.
-- Plans that were not started for a day are deleted first. Their frozen lists are deleted from the
-- beginning, because start_campaign checks whether the first row is still there.
-- in:    batch: how many campaigns to look at, and 20 times as many rows of a frozen list
-- locks: the deleted plan, skip locked: the session that has locked it may be starting it
-- plan:  campaigns_pkey, dead_letters_campaign_idx, campaigns_planned_idx; campaign_jobs_pkey, a
--        descent for each campaign
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
    most constant int := 20 * batch;
    start bigint;
    looked bigint[];
    unlisted bigint[];
    gone int;
    unplanned int;
    dropped int;
begin
    select c.id into old from redrive.campaigns c
    where c.state = 'planned' and c.created_at < clock_timestamp() - interval '1 day'
    order by c.created_at limit 1 for update skip locked;
    delete from redrive.campaign_jobs j
    where j.campaign = old and j.n in (
        select o.n from redrive.campaign_jobs o where o.campaign = old order by o.n limit most);
    get diagnostics unplanned = row_count;
    delete from redrive.campaigns c
    where c.state = 'planned' and c.created_at < clock_timestamp() - interval '1 day'
      and not exists (select from redrive.campaign_jobs j where j.campaign = c.id);
    select h.place into start
    from redrive.chores h where h.name = 'forget_campaigns' and h.place >= 0;
    looked := array(select c.id from redrive.campaigns c where c.id > start order by c.id limit batch);
    delete from redrive.campaigns c
    where c.id = any (looked) and c.state in ('done', 'cancelled', 'aborted')
      and c.created_at < clock_timestamp() - older_than
      and not exists (select from redrive.dead_letters d where d.campaign = c.id);
    get diagnostics gone = row_count;
    -- The lists of deleted campaigns. There may be millions of rows, so the walk stays here until the
    -- last of them is deleted.
    unlisted := array(
        with recursive listed(id) as (
            (select j.campaign from redrive.campaign_jobs j
             where j.campaign > start order by j.campaign limit 1)
            union all
            select n.campaign
            from listed l, lateral (
                select j.campaign from redrive.campaign_jobs j
                where j.campaign > l.id order by j.campaign limit 1) n
            where l.id < coalesce(looked[batch], l.id + 1))
        select l.id from listed l
        where l.id <= coalesce(looked[batch], l.id)
          and not exists (select from redrive.campaigns c where c.id = l.id));
    delete from redrive.campaign_jobs j
    where j.ctid = any (array(
        select o.ctid from redrive.campaign_jobs o
        where o.campaign = any (unlisted) limit most));
    get diagnostics dropped = row_count;
    update redrive.chores h
    set place = case when dropped = most then start else coalesce(looked[batch], -1) end
    where h.name = 'forget_campaigns' and h.place >= 0;
    return gone + (unplanned + dropped + 19) / 20;
end
$$;

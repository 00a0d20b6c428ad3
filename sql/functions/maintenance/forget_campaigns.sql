-- forget_campaigns: those past their retention that have ended and of which no dead letter is left.
-- One step of a walk over all of them;
-- at its end it waits for those of the other tables.
-- in:    batch: how many are looked at
-- plan:  campaigns_pkey, dead_letters_campaign_idx
create or replace function redrive.forget_campaigns_v1(older_than interval, batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    looked bigint[];
    gone int;
begin
    select array(select c.id from redrive.campaigns c where c.id > h.place
                 order by c.id limit batch)
    into looked
    from redrive.chores h where h.name = 'forget_campaigns' and h.place >= 0;
    delete from redrive.campaigns c
    where c.id = any (looked) and c.state <> 'running'
      and c.created_at < clock_timestamp() - older_than
      and not exists (select from redrive.dead_letters d where d.campaign = c.id);
    get diagnostics gone = row_count;
    update redrive.chores h
    set place = case when cardinality(looked) = batch then looked[batch] else -1 end
    where h.name = 'forget_campaigns' and h.place >= 0;
    return gone;
end
$$;

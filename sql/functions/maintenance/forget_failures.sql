-- forget_failures: delete the failures of jobs that have no other rows left.
-- This happens if a job succeeds after its dead letter was purged. Each call is one step of a walk
-- over all failures. At its end it waits for the walks of the other tables.
-- in:    batch: how many to look at
-- plan:  failures_pkey, jobs_pkey, dead_letters_pkey
create or replace function redrive.forget_failures_v1(batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    looked bigint[];
    gone int;
begin
    select array(select f.job from redrive.failures f where f.job > h.place
                 order by f.job limit batch)
    into looked
    from redrive.chores h where h.name = 'forget_failures' and h.place >= 0;
    delete from redrive.failures f
    where f.job = any (array(
        select distinct v.job from unnest(looked) as v(job)
        where not exists (select from redrive.jobs j where j.id = v.job)
          and not exists (select from redrive.dead_letters d where d.id = v.job)));
    get diagnostics gone = row_count;
    update redrive.chores h
    set place = case when cardinality(looked) = batch then looked[batch] else -1 end
    where h.name = 'forget_failures' and h.place >= 0;
    return gone;
end
$$;

-- forget_imports: delete records of imports past the retention of keys, if no other row of the job
-- is left.
-- Each call is one step of a walk over all imports. At its end it waits for the walks of the other
-- tables.
-- in:    batch: how many to look at
-- plan:  imports_job_idx, jobs_pkey, dead_letters_pkey
create or replace function redrive.forget_imports_v1(older_than interval, batch int) returns int
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
    select array(select i.job from redrive.imports i where i.job > h.place
                 order by i.job limit batch)
    into looked
    from redrive.chores h where h.name = 'forget_imports' and h.place >= 0;
    delete from redrive.imports i
    where i.job = any (looked) and i.at < clock_timestamp() - older_than
      and not exists (select from redrive.jobs j where j.id = i.job)
      and not exists (select from redrive.dead_letters d where d.id = i.job);
    get diagnostics gone = row_count;
    update redrive.chores h
    set place = case when cardinality(looked) = batch then looked[batch] else -1 end
    where h.name = 'forget_imports' and h.place >= 0;
    return gone;
end
$$;

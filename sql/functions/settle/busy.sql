-- busy: return the jobs among these that cannot be settled now, because a row is locked.
-- This is a row that their settlement writes. The rows of the other jobs stay locked by us until
-- the end of the transaction.
-- locks: jobs, then their dead letters, then their cancellations: ascending, skip locked
-- plan:  jobs_pkey, dead_letters_pkey, cancellations_pkey
create or replace function redrive.busy_v1(ids bigint[]) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    jobs bigint[];
    letters bigint[];
    cancelled bigint[];
begin
    jobs := array(select j.id from redrive.jobs j where j.id = any (ids)
                  order by j.id for update skip locked);
    letters := array(select d.id from redrive.dead_letters d
                     where d.id = any (ids) and d.state is not distinct from 'redriven'
                     order by d.id, d.redrives for no key update skip locked);
    cancelled := array(select c.job from redrive.cancellations c where c.job = any (ids)
                       order by c.job for no key update skip locked);
    return array(
        (select j.id from redrive.jobs j where j.id = any (ids) except select unnest(jobs))
        union
        select d.id from redrive.dead_letters d
        where d.id = any (ids) and d.state is not distinct from 'redriven'
        group by d.id
        having count(*) > (select count(*) from unnest(letters) as l(id) where l.id = d.id)
        union
        select c.job from redrive.cancellations c
        where c.job = any (ids) and c.job <> all (cancelled));
end
$$;

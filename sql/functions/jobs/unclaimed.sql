-- unclaimed: return the jobs among these that no worker has claimed.
-- plan:  jobs_pkey, claims_lane_idx. For a few jobs, a search in the claims of their lanes. For many,
--        the claims of their lanes are read once: 20,000 searches in 20,000 claimed jobs took longer
--        than a statement may
create or replace function redrive.unclaimed_v1(ids bigint[]) returns bigint[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    if cardinality(ids) < 50 then
        return array(
            select j.id from redrive.jobs j
            where j.id = any (ids)
              and not exists (
                  select from redrive.claims k
                  where k.queue = j.queue and k.priority = j.priority and k.lane = j.lane
                    and j.id = any (k.ids))
            order by j.id);
    end if;
    return array(
        select j.id from redrive.jobs j where j.id = any (unclaimed_v1.ids)
        except
        select c.id
        from (select distinct j.queue, j.priority, j.lane from redrive.jobs j
              where j.id = any (unclaimed_v1.ids)) l
        join redrive.claims k on k.queue = l.queue and k.priority = l.priority and k.lane = l.lane
        cross join lateral unnest(k.ids) as c(id)
        order by 1);
end
$$;

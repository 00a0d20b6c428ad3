-- cancelled: list the jobs of these workers that should be cancelled and have not ended.
-- It is not part of the heartbeat, because a session that locks jobs must not stop a heartbeat.
-- plan:  claims_worker_idx, jobs_pkey, once there is any
create or replace function redrive.cancelled_v1(workers int[]) returns setof bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    if exists (select from redrive.cancellations) then
        return query
        select c.job from redrive.claims k
        join redrive.cancellations c on c.job = any (k.ids)
        join redrive.jobs j on j.id = c.job and j.redrives = c.redrives
        where k.worker = any (workers);
    end if;
end
$$;

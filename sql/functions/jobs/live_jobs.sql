-- live_jobs: return state, worker and place of the live jobs among these.
-- out:   place: in the form that walk_jobs_v1 takes
-- plan:  jobs_pkey, claims_lane_idx
create or replace function redrive.live_jobs_v1(ids bigint[])
returns table (id bigint, place text, state text, worker int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select j.id, redrive.job_place_v1(j.queue, j.priority, j.lane, j.run_at, j.id),
           redrive.job_state_v1(j.run_at, j.failed_at, k.worker), k.worker
    from unnest(live_jobs_v1.ids) as v(id)
    join redrive.jobs j on j.id = v.id
    left join lateral (
        select c.worker from redrive.claims c
        where c.queue = j.queue and c.priority = j.priority and c.lane = j.lane
          and j.id = any (c.ids)
        limit 1) k on true
    where j.id = any (live_jobs_v1.ids);
end
$$;

-- walk_jobs: read the next live jobs, lane by lane, and in each lane in the order in which they
-- run.
-- in:    only_queues: null: all; states: null: all
--        after: the place to continue after; null: from the beginning
--        looks: how many jobs and lanes to look at, at most 10,000
-- out:   the jobs in these states; a row without an id if there may be more: continue after its
--        place
-- plan:  jobs_due_idx, or, for running jobs alone, claims_lane_idx and jobs_pkey
-- The cost is that of the jobs looked at, however many jobs there are. The caller applies further
-- filters, and calls again for more. No snapshot is held between the calls, so vacuum is not held
-- back.
create or replace function redrive.walk_jobs_v1(
    only_queues text[], states text[], after text, looks int)
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
declare
    most constant int := least(greatest(looks, 1), 10000);
    wanted constant text[] := coalesce(
        states, '{ready,scheduled,retrying,running,blocked}');
    is_running constant boolean := wanted <@ '{running}';
    -- the part of a lane that may hold such jobs
    earliest constant timestamptz := case
        when wanted && '{ready,running}' then '-infinity'
        when wanted && '{scheduled,retrying}' then now() else 'infinity' end;
    latest constant timestamptz := case
        when 'blocked' = any (wanted) then 'infinity'
        when wanted && '{scheduled,retrying}' then '9999-12-31 UTC' else now() end;
    said constant text[] := string_to_array(after, '/');
    from_at timestamptz := coalesce(said[4]::timestamptz, '-infinity');
    from_id bigint := coalesce(said[5]::bigint, 0);
    at_lane record;
    seen record;
    held jsonb;            -- job -> worker, of the lane
    looked int := 0;
begin
    for at_lane in
        select said[1] as queue, said[2]::smallint as priority, said[3]::smallint as lane
        where said is not null and (only_queues is null or said[1] = any (only_queues))
        union all
        select l.queue, l.priority, l.lane
        from redrive.next_lanes_v1(only_queues, coalesce(said[1], ''), coalesce(said[2]::int, 0),
                                   coalesce(said[3]::int, 0), most) l
    loop
        if looked >= most then
            id := null; state := null; worker := null;
            return next;
            return;
        end if;
        looked := looked + 1;
        -- Give one lower bound: of two, the index starts at one, and not always at the later one.
        if from_at < earliest then
            from_at := earliest; from_id := 0;
        end if;
        select jsonb_object_agg(c.id, k.worker) into held
        from redrive.claims k cross join lateral unnest(k.ids) as c(id)
        where k.queue = at_lane.queue and k.priority = at_lane.priority and k.lane = at_lane.lane;
        for seen in
            select j.id, j.run_at, j.failed_at, (held ->> j.id::text)::int as worker
            from redrive.jobs j
            where not is_running
              and j.queue = at_lane.queue and j.priority = at_lane.priority
              and j.lane = at_lane.lane
              and (j.run_at, j.id) > (from_at, from_id)
              and j.run_at <= latest
            order by j.run_at, j.id
            limit most - looked
        loop
            looked := looked + 1;
            id := seen.id; worker := seen.worker;
            state := redrive.job_state_v1(seen.run_at, seen.failed_at, seen.worker);
            place := redrive.job_place_v1(at_lane.queue, at_lane.priority, at_lane.lane,
                                          seen.run_at, seen.id);
            if state = any (wanted) then
                return next;
            end if;
        end loop;
        -- Running jobs are few, and among the due jobs, perhaps behind millions of others.
        for seen in
            select j.id, j.run_at, h.value::int as worker
            from jsonb_each_text(held) h
            join redrive.jobs j on j.id = h.key::bigint
            where is_running and (j.run_at, j.id) > (from_at, from_id)
            order by j.run_at, j.id
            limit most - looked
        loop
            looked := looked + 1;
            id := seen.id; worker := seen.worker; state := 'running';
            place := redrive.job_place_v1(at_lane.queue, at_lane.priority, at_lane.lane,
                                          seen.run_at, seen.id);
            return next;
        end loop;
        if looked < most then
            place := redrive.job_place_v1(at_lane.queue, at_lane.priority, at_lane.lane,
                                          'infinity', 9223372036854775807);
        end if;
        from_at := '-infinity'; from_id := 0;
    end loop;
    if looked >= most then
        id := null; state := null; worker := null;
        return next;
    end if;
end
$$;

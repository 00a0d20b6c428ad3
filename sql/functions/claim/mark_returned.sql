-- mark_returned: let the next claim of each lane with one of these jobs find them at once.
-- They came back with their old run_at, so they may lie before the place where claims start. The
-- claim reads the lane from its beginning. If another worker claims from a lane now, the lane gets
-- no mark, and the next full scan of the lane finds the jobs.
-- locks: the rows of the lanes, skip locked. A claim holds its lane for a moment
-- plan:  jobs_pkey, lanes_pkey
create or replace function redrive.mark_returned_v1(ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    place record;
begin
    for place in select distinct j.queue, j.priority, j.lane from redrive.jobs j
                 where j.id = any (ids)
    loop
        perform from redrive.lanes l
        where l.queue = place.queue and l.priority = place.priority and l.lane = place.lane
          and not l.has_returned
        for update skip locked;
        if found then
            update redrive.lanes l set has_returned = true
            where l.queue = place.queue and l.priority = place.priority and l.lane = place.lane;
        end if;
    end loop;
end
$$;

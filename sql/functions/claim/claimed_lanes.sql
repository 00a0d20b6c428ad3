-- claimed_lanes: list the lanes from which jobs are claimed and not all done.
-- This is a loose index scan, from the last lane back to the first. Of the claims of a lane, the
-- newest one comes first then, and the dead entries of older ones are not read. If no claim is left,
-- the index alone is read up to the first id that can be alive.
-- plan:  claims_lane_idx
create or replace function redrive.claimed_lanes_v1()
returns table (queue text, priority smallint, lane smallint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    start bigint := 0;
begin
    -- A standby cannot read the unlogged table with the first live claim. It reads all claims.
    if not pg_is_in_recovery() then
        start := redrive.claims_from_v1(null);
    end if;
    return query
    with recursive found as (
        (select k.queue, k.priority, k.lane from redrive.claims k where k.id >= start
         order by k.queue desc, k.priority desc, k.lane desc limit 1)
        union all
        select n.queue, n.priority, n.lane
        from found f, lateral (
            select k.queue, k.priority, k.lane from redrive.claims k
            where (k.queue, k.priority, k.lane) < (f.queue, f.priority, f.lane) and k.id >= start
            order by k.queue desc, k.priority desc, k.lane desc limit 1) n)
    select f.queue, f.priority, f.lane from found f;
end
$$;

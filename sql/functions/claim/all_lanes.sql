-- all_lanes: list all lanes that have jobs.
-- This is a loose index scan: one descent for each lane, however many jobs it holds. The condition
-- on the queue alone lets the planner use the index.
create or replace function redrive.all_lanes_v1()
returns table (queue text, priority smallint, lane smallint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with recursive found as (
        (select j.queue, j.priority, j.lane from redrive.jobs j where j.queue >= ''
         order by j.queue, j.priority, j.lane limit 1)
        union all
        select n.queue, n.priority, n.lane
        from found f, lateral (
            select j.queue, j.priority, j.lane from redrive.jobs j
            where (j.queue, j.priority, j.lane) > (f.queue, f.priority, f.lane)
              and j.queue >= f.queue
            order by j.queue, j.priority, j.lane limit 1) n)
    select f.queue, f.priority, f.lane from found f;
end
$$;

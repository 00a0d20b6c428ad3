-- lanes: the ones this worker may claim from, most urgent first, and when each one's next job is
-- due (seconds from now, null = none).
create or replace function redrive.lanes_v1(only_queues text[])
returns table (queue text, priority smallint, lane smallint, due_in float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select f.queue, f.priority, f.lane, (
        select extract(epoch from j.run_at - clock_timestamp())::float8 from redrive.jobs j
        where j.queue = f.queue and j.priority = f.priority and j.lane = f.lane
          and j.run_at > now() and j.run_at < 'infinity'
        order by j.run_at limit 1)
    from redrive.all_lanes_v1() f
    where (only_queues is null or f.queue = any (only_queues))
      and not exists (select from redrive.queues q
                      where q.queue = f.queue and q.paused_at is not null)
    order by f.priority;
end
$$;

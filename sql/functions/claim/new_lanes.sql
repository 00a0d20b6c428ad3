-- new_lanes: list the lanes of the newest jobs that are due within a minute.
-- A worker that cannot see all lanes at once calls this, so that a new job waits for no walk.
-- in:    only_queues: null: all queues
-- out:   due_in: seconds until the first of these jobs is due; not above 0: it is due
-- plan:  jobs_pkey: at most 1,000 entries
create or replace function redrive.new_lanes_v1(only_queues text[])
returns table (queue text, priority smallint, lane smallint, due_in float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    newest bigint := (select s.last_value from redrive.jobs_id_seq s);
begin
    return query
    select j.queue, j.priority, j.lane,
           extract(epoch from min(j.run_at) - clock_timestamp())::float8
    from redrive.jobs j
    where j.id > newest - 1000 and j.run_at < clock_timestamp() + interval '1 minute'
      and (only_queues is null or j.queue = any (only_queues))
    group by j.queue, j.priority, j.lane;
end
$$;

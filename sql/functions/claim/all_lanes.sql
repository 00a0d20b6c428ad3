-- all_lanes: list all lanes that have jobs.
-- plan:  as next_lanes
create or replace function redrive.all_lanes_v1()
returns table (queue text, priority smallint, lane smallint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select l.queue, l.priority, l.lane from redrive.next_lanes_v1(null, '', 0, 0, 2147483647) l
$$;

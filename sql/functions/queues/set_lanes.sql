-- set_lanes: set the number of lanes over which a queue spreads its tenants, from the second lane
-- on.
-- Claims take from the lanes in turn. Waiting jobs keep their lane, which usually differs from
-- their tenant's new lane.
create or replace function redrive.set_lanes_v1(queue text, lanes int, actor text, why text)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.queues as q (queue, lanes) values (queue, lanes)
    on conflict (queue) do update set lanes = excluded.lanes;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'set lanes', why, 1, jsonb_build_object('queue', queue, 'lanes', lanes))
$$;

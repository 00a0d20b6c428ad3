-- set_lanes: over how many lanes a queue spreads its tenants, from the second one on; claims take
-- from the lanes in turn. What waits already keeps its lane, which is another one as a rule.
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

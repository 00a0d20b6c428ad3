-- lane_of: return the lane of a tenant's jobs in a queue, as enqueue chooses it.
create or replace function redrive.lane_of_v1(queue text, tenant text) returns smallint
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select coalesce((
        select 1 + abs(hashtext(lane_of_v1.tenant)::bigint) % q.lanes from redrive.queues q
        where q.queue = lane_of_v1.queue and q.lanes > 1), 0)::smallint
$$;

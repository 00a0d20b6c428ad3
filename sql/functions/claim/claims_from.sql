-- claims_from: no live claim of this worker, null = of any, has a lower id. A scan of claims begins
-- here: an open snapshot may keep millions of dead ones below.
create or replace function redrive.claims_from_v1(worker int) returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select greatest(
        (select w.claims_from from redrive.workers w where w.id = claims_from_v1.worker),
        (select e.claims_from from redrive.epoch e), 0)
$$;

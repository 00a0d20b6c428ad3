-- claims_from: return an id below which there is no live claim of this worker.
-- A scan of claims begins here, because an open snapshot may keep millions of dead rows below it.
-- in:    worker: null: no live claim of any worker
create or replace function redrive.claims_from_v1(worker int) returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select greatest(
        (select w.claims_from from redrive.workers w where w.id = claims_from_v1.worker),
        (select e.claims_from from redrive.epoch e), 0)
$$;

-- register: give a worker its identity. A job belongs to a worker row; the row being beaten in time
-- is what makes the claim valid.
-- in:    ttl: how long the worker may be silent before its jobs are others' to run
create or replace function redrive.register_v2(
    worker_name text, worker_version text, ttl interval) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.workers (name, version, ttl, heard)
    values (worker_name, worker_version, ttl, redrive.contact_now_v1()) returning id
$$;

-- As the release before called it.
create or replace function redrive.register_v1(worker_name text, worker_version text) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.workers (name, version, heard)
    values (worker_name, worker_version, redrive.contact_now_v1()) returning id
$$;

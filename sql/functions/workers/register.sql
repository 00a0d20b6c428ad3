-- register: give a worker its identity.
-- A job belongs to a worker row; the row being beaten in time is what makes the claim valid.
create or replace function redrive.register_v1(worker_name text, worker_version text) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.workers (name, version) values (worker_name, worker_version) returning id
$$;

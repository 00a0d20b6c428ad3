-- register: give a worker its identity. A job belongs to a worker row; the row being beaten in time
-- is what makes the claim valid. Its id is drawn at random: a sequence gives numbers again after a
-- failover that lost some, and then a stranger's settlement would pass for its own.
-- in:    ttl: how long the worker may be silent before its jobs are others' to run
--        kinds: what it has handlers for; mail.*: all that begin so
--        queues: what it serves; null: all
--        depends_on: {kind: [breaker ...]}, for those that have any; null: none
--        holds: those of the kinds whose deaths hold their ordering key; null: none
create or replace function redrive.register_v4(
    worker_name text, worker_version text, ttl interval, kinds text[], queues text[],
    depends_on jsonb, holds text[] default null) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.workers (id, name, version, ttl, kinds, queues, depends_on, holds,
                                 heard, marks_jobs)
    overriding system value
    values (1 + floor(random() * 2147483647)::int, worker_name, worker_version, ttl, kinds, queues,
            depends_on, holds, redrive.contact_now_v1(), false)
    returning id
$$;

-- register: give a worker its identity.
-- A job belongs to a worker row, and its claim is valid while that row gets its heartbeats in time.
-- The id is random. A sequence that lost numbers in a failover would give them again, and then
-- another worker's settlement would pass for this worker's own.
-- in:    ttl: how long the worker may be silent before others may run its jobs
--        kinds: what it has handlers for; mail.*: all kinds with this prefix
--        queues: what it serves; null: all
--        depends_on: {kind: [breaker ...]}, for kinds that have any; null: none
--        holds: the kinds whose dead letters hold their ordering key; null: none
create or replace function redrive.register_v1(
    worker_name text, worker_version text, ttl interval, kinds text[], queues text[],
    depends_on jsonb, holds text[]) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.workers (id, name, version, ttl, kinds, queues, depends_on, holds,
                                 heard)
    overriding system value
    values (1 + floor(random() * 2147483647)::int, worker_name, worker_version, ttl, kinds, queues,
            depends_on, holds, redrive.contact_now_v1())
    returning id
$$;

-- register: give a worker its identity.
-- A job belongs to a worker row, and its claim is valid while that row gets its heartbeats in time.
-- The id is random. A sequence that lost numbers in a failover would give them again, and then
-- another worker's settlement would pass for this worker's own.
-- in:    ttl: how long the worker may be silent before others may run its jobs
--        kinds: what it has handlers for; mail.*: all kinds with this prefix
--        queues: what it serves; null: all
--        depends_on: {kind: [breaker ...]}, for kinds that have any; null: none
--        holds: the kinds whose dead letters hold their ordering key; null: none
-- The first worker of a version is marked as a deploy: no live worker has this version, and the
-- last deploy of any of its kinds was of another one.
create or replace function redrive.register_v1(
    worker_name text, worker_version text, ttl interval, kinds text[], queues text[],
    depends_on jsonb, holds text[]) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.marks (what, name, queues, kinds)
    select 'deploy', worker_version, register_v1.queues, register_v1.kinds
    where worker_version <> ''
      and not exists (select from redrive.workers w
                      where w.version = worker_version
                        and redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl))
      and worker_version is distinct from (
          select m.name from redrive.marks m
          where m.what = 'deploy'
            and (m.kinds && register_v1.kinds or (m.kinds && register_v1.kinds) is null)
          order by m.id desc limit 1);
    insert into redrive.workers (id, name, version, ttl, kinds, queues, depends_on, holds,
                                 heard)
    overriding system value
    values (1 + floor(random() * 2147483647)::int, worker_name, worker_version, ttl, kinds, queues,
            depends_on, holds, redrive.contact_now_v1())
    returning id
$$;

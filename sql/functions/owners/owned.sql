-- owned: list the queues and kinds with dead letters that an owner has, as QUEUE/KIND.
create or replace function redrive.owned_v1(owner text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select coalesce(array_agg(distinct t.queue || '/' || t.kind), '{}') from redrive.totals t
    where t.event in ('dead', 'imported') and t.kind <> ''
      and redrive.owner_of_v1(t.queue, t.kind) = owned_v1.owner
$$;

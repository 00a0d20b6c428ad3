-- owner_of: return the owner of a kind on a queue; null if it has none.
-- The most specific pattern decides: queue and kind, then the kind, then the queue, then '*'.
-- in:    kind: null for all kinds of the queue together
-- plan:  owners_pkey, four probes
create or replace function redrive.owner_of_v1(queue text, kind text) returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select o.owner from redrive.owners o
    where (o.queue, o.kind) in ((owner_of_v1.queue, owner_of_v1.kind), ('*', owner_of_v1.kind),
                                (owner_of_v1.queue, '*'), ('*', '*'))
    order by o.kind = '*', o.queue = '*' limit 1
$$;

-- holds_key: return true if a dead letter of this kind holds its ordering key.
-- The declaration of any registered worker counts, not only that of the worker that had the job. A
-- failover may lose the identity of that worker. While a deployment changes the setting, holding
-- does less harm.
create or replace function redrive.holds_key_v1(kind text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select exists (
        select from redrive.workers w
        where w.holds is not null and (
            -- the handler of a kind is the one of that name, or the one with the longest prefix
            select k.kind from unnest(w.kinds) as k(kind)
            where k.kind = holds_key_v1.kind
               or (right(k.kind, 1) = '*' and starts_with(holds_key_v1.kind, left(k.kind, -1)))
            order by k.kind = holds_key_v1.kind desc, length(k.kind) desc limit 1) = any (w.holds))
$$;

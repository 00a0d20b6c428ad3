-- holds_key: does the death of a job of this kind hold its ordering key?
-- As any worker says that is registered, and not only the one that had the job: nothing is known of
-- an identity that a failover lost, and while a deployment brings the change holding does less harm.
create or replace function redrive.holds_key_v1(kind text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select exists (
        select from redrive.workers w
        where w.holds is not null and (
            -- its handler is the one of that name, or the longest prefix
            select k.kind from unnest(w.kinds) as k(kind)
            where k.kind = holds_key_v1.kind
               or (right(k.kind, 1) = '*' and starts_with(holds_key_v1.kind, left(k.kind, -1)))
            order by k.kind = holds_key_v1.kind desc, length(k.kind) desc limit 1) = any (w.holds))
$$;

-- claims_of: the claims that list these jobs of these workers, null where there is none.
-- For a handler's own transaction, which knows the worker alone.
create or replace function redrive.claims_of_v1(workers int[], ids bigint[]) returns bigint[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select array_agg((select k.id from redrive.claims k
                      where k.worker = v.worker and v.id = any (k.ids) limit 1)
                     order by v.n)
    from unnest(workers, ids) with ordinality as v(worker, id, n)
$$;

-- claims_of: return the claims of these workers that list these jobs; null where there is none.
-- A handler's own transaction uses it, because it knows only the worker.
create or replace function redrive.claims_of_v1(workers int[], ids bigint[]) returns bigint[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select array_agg((select k.id from redrive.claims k
                      where k.worker = v.worker and k.id >= redrive.claims_from_v1(v.worker)
                        and v.id = any (k.ids) limit 1)
                     order by v.n)
    from unnest(workers, ids) with ordinality as v(worker, id, n)
$$;

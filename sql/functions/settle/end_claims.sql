-- end_claims: delete the claims of these workers that have no jobs left.
create or replace function redrive.end_claims_v1(workers int[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.claims k
    using (select v.id, redrive.claims_from_v1(v.id) as start from unnest(workers) as v(id)) w
    where k.worker = w.id and k.id >= w.start
      and not exists (select from unnest(k.ids) as c(id) join redrive.jobs j on j.id = c.id)
$$;

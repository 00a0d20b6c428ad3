-- end_claims: forget the claims of these workers of which no job is left.
create or replace function redrive.end_claims_v1(workers int[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.claims k
    where k.worker = any (workers)
      and not exists (select from unnest(k.ids) as c(id) join redrive.jobs j on j.id = c.id)
$$;

-- held: list the jobs that these workers hold now.
-- plan:  claims_worker_idx, jobs_pkey
create or replace function redrive.held_v1(workers int[])
returns table (worker int, claim bigint, id bigint, deliveries int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select k.worker, k.id, j.id, j.deliveries
    from (select v.id, redrive.claims_from_v1(v.id) as start from unnest(workers) as v(id)) w
    join redrive.claims k on k.worker = w.id and k.id >= w.start
    cross join lateral unnest(k.ids) as c(id)
    join redrive.jobs j on j.id = c.id;
end
$$;

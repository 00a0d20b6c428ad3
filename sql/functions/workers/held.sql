-- held: list the jobs that these workers hold now.
-- out:   marked_by: the worker, if it is of the release before, which had no claims and marked the
--        job; then claim is null
-- plan:  claims_worker_idx, jobs_pkey; a scan of the jobs only if such a worker is among these
create or replace function redrive.held_v1(workers int[])
returns table (worker int, claim bigint, id bigint, deliveries int, marked_by int)
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
    select k.worker, k.id, j.id, j.deliveries, null::int
    from (select v.id, redrive.claims_from_v1(v.id) as start from unnest(workers) as v(id)) w
    join redrive.claims k on k.worker = w.id and k.id >= w.start
    cross join lateral unnest(k.ids) as c(id)
    join redrive.jobs j on j.id = c.id;
    if exists (select from redrive.workers w where w.id = any (workers) and w.marks_jobs) then
        return query
        select j.worker, null::bigint, j.id, j.deliveries, j.worker from redrive.jobs j
        where j.worker = any (workers);
    end if;
end
$$;

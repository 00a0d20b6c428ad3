-- marked: jobs that workers of the release before hold, by their mark: they had no claims.
-- plan: a scan of the jobs, and only while such a worker is among these.
create or replace function redrive.marked_v1(workers int[])
returns table (worker int, claim bigint, id bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = on
as $$
    select j.worker, null::bigint, j.id from redrive.jobs j
    where j.worker = any (workers)
      and exists (select from redrive.workers w where w.id = any (workers) and w.marks_jobs)
$$;

-- enqueue_each: enqueue jobs as enqueue_many does, but one after the other.
-- in:    places: of the jobs to enqueue, from 1; null: all
create or replace function redrive.enqueue_each_v1(jobs jsonb, places int[])
returns table (n int, id bigint, created boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    job record;
begin
    for job in
        select r.* from redrive.given_jobs_v1(jobs) r
        where places is null or r.n = any (places)
        order by r.n
    loop
        n := job.n - 1;
        select e.id, e.created into id, created
        from redrive.enqueue_v1(
            job.kind, coalesce(job.payload, '{}'), coalesce(job.queue, 'default'), job.run_at,
            coalesce(job.priority, 0), job.max_attempts, job.idempotency_key, job.ordering_key,
            job.tenant, make_interval(secs => job.expires_in), coalesce(job.headers, '{}'),
            make_interval(secs => job.delay), make_interval(secs => job.unique_for), job.unique_by,
            job.on_conflict, job.batch) e;
        return next;
    end loop;
end
$$;

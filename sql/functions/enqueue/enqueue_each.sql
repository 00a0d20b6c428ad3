-- enqueue_each: as enqueue_many, one job after the other.
create or replace function redrive.enqueue_each_v1(jobs jsonb)
returns table (n int, id bigint, created boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    job record;
begin
    for job in
        select (a.n - 1)::int as n, r.*
        from jsonb_array_elements(jobs) with ordinality a(value, n),
        lateral jsonb_to_record(a.value) as r(
            kind text, payload jsonb, queue text, run_at timestamptz, priority int,
            max_attempts int, idempotency_key text, ordering_key text, tenant text,
            expires_in float8, headers jsonb, delay float8, unique_for float8,
            unique_by text[], on_conflict text, batch bigint)
        order by a.n
    loop
        n := job.n;
        select e.id, e.created into id, created
        from redrive.enqueue_v2(
            job.kind, coalesce(job.payload, '{}'), coalesce(job.queue, 'default'), job.run_at,
            coalesce(job.priority, 0), job.max_attempts, job.idempotency_key, job.ordering_key,
            job.tenant, make_interval(secs => job.expires_in), coalesce(job.headers, '{}'),
            make_interval(secs => job.delay), make_interval(secs => job.unique_for), job.unique_by,
            job.on_conflict, job.batch) e;
        return next;
    end loop;
end
$$;

-- given_jobs: read the jobs of a producer from JSON.
-- in:    jobs: an array of objects with the parameters of enqueue as fields; or an object with one
--        array for each parameter, which is cheaper to read. Durations are seconds. In an array for
--        unique_by each element is the text of a JSON array
-- out:   n: place, from 1; fields that are not given are null
create or replace function redrive.given_jobs_v1(jobs jsonb)
returns table (
    n bigint, kind text, payload jsonb, queue text, run_at timestamptz, priority int,
    max_attempts int, idempotency_key text, ordering_key text, tenant text, expires_in float8,
    headers jsonb, delay float8, unique_for float8, unique_by text[], on_conflict text,
    batch bigint)
language sql stable
begin atomic
    select r.ordinality, r.kind, r.payload, r.queue, r.run_at, r.priority, r.max_attempts,
           r.idempotency_key, r.ordering_key, r.tenant, r.expires_in, r.headers, r.delay,
           r.unique_for, r.unique_by, r.on_conflict, r.batch
    from rows from (jsonb_to_recordset(case when jsonb_typeof(jobs) = 'array' then jobs end) as (
        kind text, payload jsonb, queue text, run_at timestamptz, priority int, max_attempts int,
        idempotency_key text, ordering_key text, tenant text, expires_in float8, headers jsonb,
        delay float8, unique_for float8, unique_by text[], on_conflict text, batch bigint))
        with ordinality as r
    union all
    select r.n, r.kind, r.payload, r.queue, r.run_at, r.priority, r.max_attempts,
           r.idempotency_key, r.ordering_key, r.tenant, r.expires_in, r.headers, r.delay,
           r.unique_for,
           case when r.unique_by is not null
                then array(select jsonb_array_elements_text(r.unique_by::jsonb)) end,
           r.on_conflict, r.batch
    from jsonb_to_record(case when jsonb_typeof(jobs) = 'object' then jobs end) as c(
             kind text[], payload jsonb[], queue text[], run_at timestamptz[], priority int[],
             max_attempts int[], idempotency_key text[], ordering_key text[], tenant text[],
             expires_in float8[], headers jsonb[], delay float8[], unique_for float8[],
             unique_by text[], on_conflict text[], batch bigint[]),
         unnest(c.kind, c.payload, c.queue, c.run_at, c.priority, c.max_attempts,
                c.idempotency_key, c.ordering_key, c.tenant, c.expires_in, c.headers, c.delay,
                c.unique_for, c.unique_by, c.on_conflict, c.batch) with ordinality as r(
             kind, payload, queue, run_at, priority, max_attempts, idempotency_key, ordering_key,
             tenant, expires_in, headers, delay, unique_for, unique_by, on_conflict, batch, n);
end;

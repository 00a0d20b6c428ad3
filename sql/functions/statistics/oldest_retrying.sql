-- oldest_retrying: return for how long each queue's oldest retrying job has been failing.
-- The time counts from the job's first failure since it was enqueued or redriven.
-- It looks at the jobs of each queue and cause that are due last, at most 100 of them, and at most
-- 1,000 of all together, but at least one. Waits double with each failure, so these jobs have failed
-- for longest. It reads the failures of the jobs with the most attempts, at most 1,000 of all queues
-- together, but at least one of each queue.
-- plan:  jobs_failing_idx, backwards for each queue and cause; failures_pkey, dead_letters_pkey
create or replace function redrive.oldest_retrying_v1()
returns table (queue text, age_seconds float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
    with known as materialized (
        select c.fingerprint, f.queue
        from redrive.failing_causes_v1() f, unnest(f.fingerprints) as c(fingerprint)),
    found as materialized (
        select k.queue, j.id, j.redrives,
               row_number() over (partition by k.queue order by j.attempt desc) as n
        from known k,
        lateral (
            select j.id, j.redrives, j.attempt from redrive.jobs j
            where j.fingerprint = k.fingerprint and j.queue = k.queue and j.failed_at is not null
              and j.run_at > now() and j.run_at < 'infinity'
            order by j.run_at desc
            limit (select greatest(1, least(100, 1000 / greatest(count(*), 1))) from known)) j)
    select j.queue, max(extract(epoch from clock_timestamp() - f.at))::float8
    from (select * from found f
          where f.n <= (select greatest(1, 1000 / nullif(count(distinct k.queue), 0)) from known k)) j,
    lateral (
        select f.at from redrive.failures f
        where f.job = j.id
          and f.deliveries > case when j.redrives = 0 then 0 else coalesce((
              select d.deliveries from redrive.dead_letters d
              where d.id = j.id order by d.redrives desc limit 1), 0) end
        order by f.deliveries limit 1) f
    group by j.queue
$$;

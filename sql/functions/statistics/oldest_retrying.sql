-- oldest_retrying: return for how long each queue's oldest retrying job has been failing.
-- The time counts from the job's first failure since it was enqueued or redriven.
-- It looks at the jobs of a queue that are due last, at most 100 of them, and at most 10,000 of all
-- queues together, but at least ten. Waits double with each failure, so these jobs have failed for
-- longest.
-- plan:  jobs_retrying_idx, backwards; failures_pkey, dead_letters_pkey
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
        select t.queue from redrive.tallies t where t.event = 'retried'
        union select t.queue from redrive.deltas t where t.event = 'retried')
    select k.queue, max(extract(epoch from clock_timestamp() - f.at))::float8
    from known k,
    lateral (
        select j.id, j.redrives from redrive.jobs j
        where j.queue = k.queue and j.failed_at is not null
          and j.run_at > now() and j.run_at < 'infinity'
        order by j.run_at desc
        limit (select greatest(10, least(100, 10000 / greatest(count(*), 1))) from known)) j,
    lateral (
        select f.at from redrive.failures f
        where f.job = j.id
          and f.deliveries > case when j.redrives = 0 then 0 else coalesce((
              select d.deliveries from redrive.dead_letters d
              where d.id = j.id order by d.redrives desc limit 1), 0) end
        order by f.deliveries limit 1) f
    group by k.queue
$$;

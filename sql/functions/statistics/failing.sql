-- failing: return why live jobs fail that have failed and not ended yet.
-- Such a job waits for its next attempt, or runs it. Its cause is its last failure.
-- in:    most: how many of these jobs to read
-- out:   a row for each queue, kind and fingerprint. failing: its jobs. sample: the job that has
--        failed most often in a row. since: the first of these failures. next_retry: null: all are
--        blocked or held
-- plan:  jobs_failing_idx, as a bitmap, so that it reads each page once; failures_pkey. A generic plan
--        would not know the limit, and read a page for each job
create or replace function redrive.failing_v1(most int)
returns table (queue text, kind text, fingerprint text, category text, failing bigint,
               since timestamptz, next_retry timestamptz, sample bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set work_mem = '32MB'
set plan_cache_mode = force_custom_plan
set jit = off
as $$
    with causes as materialized (
        select j.queue, j.kind, j.fingerprint, count(*) as failing,
               min(j.run_at) filter (where j.run_at < redrive.held_until_v1()) as next_retry,
               max(array[j.streak, -j.id]) as worst
        from (select o.id, o.queue, o.kind, o.fingerprint, o.run_at, o.streak from redrive.jobs o
              where o.failed_at is not null limit failing_v1.most) j
        group by 1, 2, 3)
    select c.queue, c.kind, c.fingerprint, f.category, c.failing, f.since, c.next_retry, s.id
    from causes c
    cross join lateral (select -c.worst[2] as id, c.worst[1] as streak) s
    cross join lateral (
        select max(l.category) as category, min(l.at) as since
        from (select l.category, l.at from redrive.failures l
              where l.job = s.id and l.fingerprint = c.fingerprint
              order by l.deliveries desc limit s.streak) l) f
    order by c.failing desc, c.queue, c.kind, c.fingerprint
$$;

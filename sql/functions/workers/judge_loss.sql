-- judge_loss: decide what happens to the jobs that a lost worker held.
-- in:    lost_worker; held: their ids
-- out:   for each job: outcome and reason as settle takes them, whether the attempt is refunded,
--        the losses to add, the failure to record
-- plan:  jobs_pkey, failures_pkey
-- A job is dead only if it ran alone in the pod, by the mark of run_alone. A job that had not
-- started is unchanged. Each other job may have started and may have killed the process. So it is a
-- suspect, and its attempt is refunded.
-- Which jobs had not started: a runner starts its jobs in the order in which it got them, one for
-- each that ends. So among the jobs that waited at the last beat, only the first ones can have
-- started since. These are as many as have ended, because the worker no longer holds them. Add one
-- for each slot, because its job may have ended without being settled.
-- Losses start from zero if a run lasted longer than it ever took to lose a process. Then nothing
-- that the job does caused the earlier losses.
create or replace function redrive.judge_loss_v1(lost_worker int, held bigint[])
returns table (id bigint, outcome text, reason text, refund boolean, losses int, failure jsonb)
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with w as materialized (
        select coalesce(extract(epoch from k.ttl), 30)::float8 as ttl, k.alone, k.progress,
               k.progress -> 'running' as running
        from redrive.workers k where k.id = lost_worker),
    running as materialized (
        select r.key::bigint as id, r.value::float8 as seconds
        from w, jsonb_each_text(w.progress -> 'running') r),
    waiting as materialized (
        select i.id::bigint as id, i.place
        from w, jsonb_array_elements(w.progress -> 'waiting') q,
             jsonb_array_elements_text(q) with ordinality as i(id, place)),
    -- An object is searched by its keys. A join would compare each job with each here.
    placed as materialized (
        select jsonb_object_agg(i.id, i.place) as places from waiting i),
    since as materialized (
        select (w.progress ->> 'slots')::int + (
            select count(*) from (select r.id from running r union all
                                  select i.id from waiting i) s
            where s.id not in (select h from unnest(held) h)) as may_have_started
        from w),
    judged as (
        select j.id, w.alone is not distinct from j.id as is_proven,
               coalesce((placed.places ->> j.id::text)::int > since.may_have_started, false)
                   as is_unstarted,
               coalesce(r.seconds, 0) as seconds, coalesce(r.seconds, 0) + w.ttl as at_most,
               case when r.seconds > (
                        select max((f.detail ->> 'ran_at_most')::float8) from redrive.failures f
                        where f.job = j.id and f.category = 'lost')
                    then 1 - redrive.recent_losses_v1(j.losses, j.failed_at) else 1 end as losses
        from w, since, placed, unnest(held) h(id)
        join redrive.jobs j on j.id = h.id
        cross join lateral (select (w.running ->> h.id::text)::float8 as seconds) r)
    select g.id, case when g.is_proven then 'dead' else 'rescue' end,
           case when g.is_proven then 'killed_worker' else 'worker_lost' end,
           not g.is_proven, case when g.is_unstarted then 0 else g.losses end,
           case when not g.is_unstarted then jsonb_build_object(
               'error_class', 'WorkerLost',
               'message', case when g.is_proven
                               then 'the worker was lost while the job ran alone in it'
                               else 'the worker stopped beating while it held the job' end,
               'category', 'lost', 'fingerprint', 'worker-lost',
               'detail', jsonb_build_object(
                   'ran_at_least', g.seconds, 'ran_at_most', g.at_most)) end
    from judged g
$$;

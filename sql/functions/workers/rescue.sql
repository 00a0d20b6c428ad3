-- rescue: take jobs back from workers whose heartbeat stopped.
-- in:    ttl, max_losses: a job that lost this many workers is dead-lettered, it may be what kills them
-- out:   counts
-- locks: lost worker rows exclusively (waits for no claim: skip locked), then their jobs, skip locked
-- plan:  a scan of the live table, once per lost worker: that is the price of not indexing `worker`, paid per crash
--        and not per job. With nobody lost it ends after one look at a table of a few dozen rows.
create or replace function redrive.rescue_v1(
    ttl interval, max_losses int, out lost int, out rescued int, out buried int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    lost_ids int[];
begin
    -- Marking first closes the race with a claim: it holds its worker row for key share and looks at lost_at again.
    -- After a restart of the server everybody gets one ttl to be heard again: the outage was not theirs.
    update redrive.workers w set lost_at = clock_timestamp()
    where w.id in (
        select s.id from redrive.workers s
        where s.lost_at is null and s.seen_at < clock_timestamp() - ttl
          and pg_postmaster_start_time() < clock_timestamp() - ttl
        for update skip locked);
    select array_agg(s.id) into lost_ids
    from (select w.id from redrive.workers w where w.lost_at is not null for update skip locked) s;
    lost := coalesce(cardinality(lost_ids), 0); rescued := 0; buried := 0;
    if lost = 0 then
        return;
    end if;
    with held as materialized (
        select j.ctid as tid, j.losses + 1 >= max_losses as spent, w.name
        from redrive.jobs j join redrive.workers w on w.id = j.worker
        where j.worker = any (lost_ids)
        order by j.id
        for update of j skip locked),                 -- a handler of a paused worker may hold one in its own transaction
    gone as (
        delete from redrive.jobs j using held h where j.ctid = h.tid and h.spent returning j.*, h.name),
    back as (
        update redrive.jobs j
        set worker = null, run_at = clock_timestamp(), losses = j.losses + 1, failed_at = clock_timestamp(),
            streak = case when j.fingerprint = 'worker-lost' then j.streak + 1 else 1 end, fingerprint = 'worker-lost'
        from held h where j.ctid = h.tid and not h.spent
        returning j.id, j.queue, j.kind, j.deliveries, j.attempt, h.name),
    recorded as (
        insert into redrive.failures (job, deliveries, attempt, worker, error_class, message, category, fingerprint)
        select id, deliveries, attempt, name, 'WorkerLost', 'the worker stopped beating while it held the job',
               'lost', 'worker-lost'
        from (select id, deliveries, attempt, name from gone union all select id, deliveries, attempt, name from back) s),
    bury as (
        insert into redrive.dead_letters (
            id, redrives, queue, kind, reason, category, error_class, message, fingerprint, attempts, deliveries, losses,
            max_attempts, priority, lane, created_at, first_failed_at, expires_at, tenant, ordering_key,
            idempotency_key, headers, payload)
        select g.id, g.redrives, g.queue, g.kind, 'killed_worker', 'lost', 'WorkerLost',
               'the worker stopped beating while it held the job', 'worker-lost', g.attempt, g.deliveries, g.losses + 1,
               g.max_attempts, g.priority, g.lane, g.created_at,
               coalesce((select min(f.at) from redrive.failures f where f.job = g.id), clock_timestamp()),
               g.expires_at, g.tenant, g.ordering_key, g.idempotency_key, g.headers, g.payload
        from gone g),
    judged as (
        update redrive.dead_letters d set outcome = 'dead_again'
        from gone g
        where g.redrives > 0 and d.id = g.id and d.redrives = g.redrives - 1 and d.state = 'redriven'),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, event, reason, count(*)
        from (select queue, kind, 'dead' as event, 'killed_worker' as reason from gone
              union all
              select queue, kind, 'outcome', 'dead_again' from gone where redrives > 0
              union all
              select queue, kind, 'rescued', 'worker_lost' from back) s
        group by queue, kind, event, reason)
    select (select count(*) from back), (select count(*) from gone) into rescued, buried;
    -- What was locked stays with its lost worker and comes back with the next sweep.
    delete from redrive.workers w
    where w.id = any (lost_ids) and not exists (select from redrive.jobs j where j.worker = w.id);
end
$$;

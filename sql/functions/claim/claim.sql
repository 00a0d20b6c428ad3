-- claim: take up to `want` due jobs for worker `me`, lane by lane in the order given.
-- in:    parallel arrays, one element per lane: queues, priorities, lanes, floors (run_at to start
--        the scan at); relaxed: commit without waiting for the disk, for a claim that shares its
--        transaction with no settlement: a claim lost in a crash only means that the jobs are
--        claimed again, and the fence catches the first ones
-- out:   the jobs; `lane_no` counts the lanes from 1; `rest` holds what few jobs have, null where
--        there is nothing
-- locks: job rows skip locked, the worker row for key share: it never waits
-- plan:  jobs_ready_idx
create or replace function redrive.claim_v1(
    me int, queues text[], priorities smallint[], lanes smallint[], floors timestamptz[], want int,
    relaxed boolean)
returns table (id bigint, deliveries int, attempt int, kind text, payload text, rest text,
               lane_no int, run_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A queue is empty most of the time, so this is planned on an empty table and must not come out as
-- a Seq Scan: without these it was measured at 8 s per claim when the same session met a million
-- rows.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    if relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    return query
    with alive as materialized (
        select w.id from redrive.workers w where w.id = me and w.lost_at is null for key share),
    pick as materialized (
        select l.lane_no, due.tid
        from unnest(queues, priorities, lanes, floors) with ordinality
            as l(queue, priority, lane, floor, lane_no),
        lateral (
            select j.ctid as tid
            from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at >= l.floor and j.run_at <= now()
              and j.worker is null
              -- One of a key at a time, the older first. One that was inserted before and committed
              -- after the others could not see them, and was not parked; it waits for the one that
              -- runs.
              and (j.ordering_key is null or not exists (
                  select from redrive.jobs o
                  where o.queue = j.queue and o.ordering_key = j.ordering_key
                    and o.run_at < 'infinity' and o.id <> j.id
                    and (o.id < j.id or o.worker is not null)))
            order by j.run_at
            limit want
            for update of j skip locked) due
        -- no ORDER BY here: it would lock a batch of every lane before the first is taken
        limit want),
    taken as (
        update redrive.jobs j
        set worker = me, deliveries = deliveries + 1, attempt = attempt + 1
        -- `offset 0` keeps the worker row unlocked, and the poll free of a transaction id, while
        -- nothing is due
        from pick, lateral (select from alive where pick.tid is not null offset 0) as still_alive
        where j.ctid = pick.tid
        -- only what leaves: a CTE of whole rows is copied three times on its way
        returning j.id, j.deliveries, j.attempt, j.queue, j.kind, j.payload::text as payload,
            case when j.failed_at is null and j.idempotency_key is null and j.headers = '{}'
                      and j.max_attempts is null and j.expires_at is null and j.losses = 0
                      and j.redrives = 0 and j.tenant is null and j.ordering_key is null then null
                 else jsonb_build_object(
                     'max_attempts', j.max_attempts, 'streak', j.streak, 'refunds', j.refunds,
                     'losses', redrive.recent_losses_v1(j.losses, j.failed_at),
                     'fingerprint', j.fingerprint, 'redrives', j.redrives, 'tenant', j.tenant,
                     'headers', j.headers, 'idempotency_key', j.idempotency_key,
                     'ordering_key', j.ordering_key,
                     'expires_in', extract(epoch from j.expires_at - clock_timestamp())
                 )::text end as rest,
            pick.lane_no::int as lane_no, j.run_at),
    counted as (
        insert into redrive.deltas (queue, kind, event, n)
        select t.queue, t.kind, 'claimed', count(*) from taken t group by t.queue, t.kind)
    select t.id, t.deliveries, t.attempt, t.kind, t.payload, t.rest, t.lane_no, t.run_at
    from taken t;
end
$$;

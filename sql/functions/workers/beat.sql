-- beat: record a worker's heartbeat.
-- in:    parallel arrays: ids, jobs in flight, and the progress of those jobs (workers.progress)
-- out:   the ids that are alive; a missing id was declared lost
create or replace function redrive.beat_v1(ids int[], inflights int[], progress jsonb[])
returns setof int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select redrive.advance_contact_v1();
    update redrive.workers w
    set seen_at = clock_timestamp(), heard = redrive.contact_now_v1(), inflight = b.inflight,
        progress = b.progress
    from unnest(ids, inflights, beat_v1.progress) as b(id, inflight, progress)
    where w.id = b.id and w.lost_at is null
    returning w.id
$$;

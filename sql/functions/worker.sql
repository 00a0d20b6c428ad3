-- register / beat / retire: a worker's identity, its heartbeat, and its orderly end.
-- A job belongs to a worker row; the row being beaten in time is what makes the claim valid.
create or replace function redrive.register_v1(worker_name text, worker_version text) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.workers (name, version) values (worker_name, worker_version) returning id
$$;

-- beat: out: the ids that are alive; an id that does not come back was declared lost
create or replace function redrive.beat_v1(ids int[], inflights int[]) returns setof int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    update redrive.workers w set seen_at = clock_timestamp(), inflight = b.inflight
    from unnest(ids, inflights) as b(id, inflight)
    where w.id = b.id and w.lost_at is null
    returning w.id
$$;

-- retire: give everything back that the worker holds, attempts refunded, and forget the worker. Idempotent.
-- in:    me: its own id, or one it left behind after a claim whose outcome it never learnt
-- out:   jobs released
-- locks: the worker row first, exclusively: a claim of this id still running on the server ends before or finds no row
create or replace function redrive.retire_v1(me int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    released int;
begin
    perform from redrive.workers w where w.id = me for update;
    with held as materialized (               -- ascending like every settlement: nobody waits in a circle
        select j.ctid as tid from redrive.jobs j where j.worker = me order by j.id for update),
    back as (
        update redrive.jobs j set worker = null, run_at = clock_timestamp(), attempt = greatest(j.attempt - 1, 0)
        from held h where j.ctid = h.tid
        returning j.queue, j.kind),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, 'released', 'retired', count(*) from back group by queue, kind)
    select count(*) into released from back;
    delete from redrive.workers w where w.id = me;
    return released;
end
$$;

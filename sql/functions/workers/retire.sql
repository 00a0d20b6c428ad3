-- retire: give back what the worker holds, attempts refunded, and forget it when that was all.
-- Idempotent.
-- in:    me: its own id, or one it left behind after a claim whose outcome it never learnt
--        known: the jobs that it goes on with
-- out:   jobs released
-- locks: the worker row first, exclusively: a claim of this id that is still on its way to the
--        server ended before, or finds no row, or one that is closed; then, skip locked, the
--        clock of contact
-- plan:  claims_worker_idx, jobs_pkey
create or replace function redrive.retire_v2(me int, known bigint[]) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    given_back bigint[];
begin
    perform from redrive.workers w where w.id = me for update;
    -- its row goes: that is how anybody knows when the last worker was there
    perform redrive.advance_contact_v1();
    if cardinality(known) > 0 then
        update redrive.workers w set is_closed = true where w.id = me and not w.is_closed;
    end if;
    -- ascending like every settlement: nobody waits in a circle
    with listed as materialized (
        select h.* from redrive.held_v1(array[me]) h where h.id <> all (known)),
    -- as they were listed: one may have been settled, and claimed by somebody else, since then
    held as materialized (
        select j.id, j.worker is not null as is_marked
        from listed l
        join redrive.jobs j on j.id = l.id and j.deliveries = l.deliveries
                           and j.worker is not distinct from l.marked_by
        order by j.id
        for update of j),
    back as (
        update redrive.jobs j
        set worker = null, run_at = clock_timestamp(),
            deliveries = j.deliveries + (not h.is_marked)::int,
            attempt = greatest(j.attempt - h.is_marked::int, 0)
        from held h where j.id = h.id
        returning j.id, j.queue, j.kind),
    freed as (
        delete from redrive.running_keys r where r.job = any (array(select h.id from held h))),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, 'released', 'retired', count(*) from back group by queue, kind)
    select coalesce(array_agg(b.id), '{}') into given_back from back b;
    perform redrive.free_slots_v1(given_back);
    update redrive.claims k
    set ids = array(select c.id from unnest(k.ids) with ordinality as c(id, n)
                    where c.id = any (known) order by c.n)
    where k.worker = me and cardinality(known) > 0;
    delete from redrive.claims k
    where k.worker = me and (cardinality(known) = 0 or k.ids = '{}');
    delete from redrive.workers w
    where w.id = me and not exists (select from redrive.claims k where k.worker = w.id);
    return cardinality(given_back);
end
$$;

-- As the release before called it: nothing is known.
create or replace function redrive.retire_v1(me int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select redrive.retire_v2(me, '{}')
$$;

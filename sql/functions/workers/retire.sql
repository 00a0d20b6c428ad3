-- retire: give back the jobs of a worker with refunded attempts, and delete its row when none is
-- left.
-- Idempotent.
-- in:    me: the worker's own id, or an earlier one, left after a claim whose outcome is unknown
--        known: the jobs that the worker continues
-- out:   released: number of jobs; is_over: true: nothing is left of the worker; false: retire it
--        again, because some of its jobs are known or locked
-- locks: the worker row first, exclusively. A claim of this id that is still on its way to the
--        server finds no row, or a closed one, unless it ended before. Then the clock of contact,
--        and the jobs, ascending. Each skip locked: a handler may hold its job in an open
--        transaction
-- plan:  claims_worker_idx, jobs_pkey
create or replace function redrive.retire_v1(
    me int, known bigint[], out released int, out is_over boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    given_back bigint[];
    start constant bigint := redrive.claims_from_v1(me);
    kept bigint[];         -- the known jobs, and the locked ones
begin
    perform from redrive.workers w where w.id = me for update skip locked;
    if not found and exists (select from redrive.workers w where w.id = me) then
        released := 0; is_over := false;
        return;
    end if;
    -- the row will be deleted, and this clock records when the last worker was there
    perform redrive.advance_contact_v1();
    -- ascending like each settlement, so that nobody waits in a circle
    with listed as materialized (
        select h.* from redrive.held_v1(array[me]) h where h.id <> all (known)),
    -- check each job against the list: it may have been settled and claimed again since
    held as materialized (
        select j.id
        from listed l
        join redrive.jobs j on j.id = l.id and j.deliveries = l.deliveries
        order by j.id
        for update of j skip locked),
    back as (
        update redrive.jobs j
        set run_at = clock_timestamp(), lane = least(j.lane, ~j.lane),
            deliveries = j.deliveries + 1
        from held h where j.id = h.id
        returning j.id, j.queue, j.kind),
    freed as (
        delete from redrive.running_keys r where r.job = any (array(select h.id from held h))),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, 'released', 'retired', count(*) from back group by queue, kind)
    select coalesce((select array_agg(b.id) from back b), '{}'),
           known || coalesce((select array_agg(l.id) from listed l
                              where l.id not in (select h.id from held h)), '{}')
    into given_back, kept;
    perform redrive.free_slots_v1(given_back);
    if cardinality(kept) > 0 then
        update redrive.workers w set is_closed = true where w.id = me and not w.is_closed;
    end if;
    update redrive.claims k
    set ids = array(select c.id from unnest(k.ids) with ordinality as c(id, n)
                    where c.id = any (kept) order by c.n)
    where k.worker = me and k.id >= start and cardinality(kept) > 0;
    delete from redrive.claims k
    where k.worker = me and k.id >= start and (cardinality(kept) = 0 or k.ids = '{}');
    delete from redrive.workers w
    where w.id = me
      and not exists (select from redrive.claims k where k.worker = w.id and k.id >= start);
    released := cardinality(given_back);
    if released > 0 then
        perform redrive.tell_v1(65535);
    end if;
    is_over := not exists (select from redrive.workers w where w.id = me);
end
$$;

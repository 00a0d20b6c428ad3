-- retire: give everything back that the worker holds, attempts refunded, and forget the worker.
-- Idempotent.
-- in:    me: its own id, or one it left behind after a claim whose outcome it never learnt
-- out:   jobs released
-- locks: the worker row first, exclusively: a claim of this id still running on the server ends
--        before or finds no row
create or replace function redrive.retire_v1(me int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    released int;
begin
    perform from redrive.workers w where w.id = me for update;
    -- ascending like every settlement: nobody waits in a circle
    with held as materialized (
        select j.ctid as tid from redrive.jobs j where j.worker = me order by j.id for update),
    back as (
        update redrive.jobs j
        set worker = null, run_at = clock_timestamp(), attempt = greatest(j.attempt - 1, 0)
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

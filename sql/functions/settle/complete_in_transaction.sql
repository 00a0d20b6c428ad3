-- complete_in_transaction: complete one job for its handler, in the handler's own transaction.
-- locks: as complete, for as long as the handler's transaction is open: rows that only this job or
--        the next one of its ordering key needs. It also takes the mark of the delivery, by which
--        end_left_open finds this transaction after its runner has died. If somebody else has taken
--        the mark, this does not wait
create or replace function redrive.complete_in_transaction_v1(worker int, id bigint, deliveries int)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select pg_try_advisory_xact_lock_shared(redrive.delivery_mark_v1(id, deliveries));
    select redrive.complete_v1(
        array[worker], redrive.claims_of_v1(array[worker], array[id]), array[id],
        array[deliveries], null) is null
$$;

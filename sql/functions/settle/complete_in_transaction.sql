-- complete_in_transaction: complete one job, called by its handler in a transaction of its own.
-- locks: as complete, for as long as the handler's transaction is open: rows that only this job or
--        the next one of its ordering key needs
create or replace function redrive.complete_in_transaction_v1(worker int, id bigint, deliveries int)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select redrive.complete_v2(
        array[worker], redrive.claims_of_v1(array[worker], array[id]), array[id],
        array[deliveries], null) is null
$$;

-- complete_in_transaction: the same for one job, called by its handler in a transaction of its own.
create or replace function redrive.complete_in_transaction_v1(worker int, id bigint, deliveries int)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select redrive.complete_v2(
        array[worker], redrive.claims_of_v1(array[worker], array[id]), array[id],
        array[deliveries], '{}') is null
$$;

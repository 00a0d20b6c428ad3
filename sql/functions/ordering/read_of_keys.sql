-- read_of_keys: return how many index entries of ordering keys this transaction has read.
create or replace function redrive.read_of_keys_v1() returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    return pg_stat_get_xact_tuples_returned('redrive.jobs_ordering_idx'::regclass)
           + pg_stat_get_xact_tuples_returned('redrive.jobs_ordering_active_idx'::regclass)
           + pg_stat_get_xact_tuples_returned('redrive.running_keys_pkey'::regclass);
end
$$;

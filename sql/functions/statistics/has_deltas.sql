-- has_deltas: return false if there is surely nothing to fold.
-- plan:  at most the first 128 blocks of each table: a table that is longer may hold dead rows only,
--        which a snapshot keeps
create or replace function redrive.has_deltas_v1() returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = on
set jit = off
as $$
    select greatest(pg_relation_size('redrive.deltas'), pg_relation_size('redrive.group_deltas'))
               > 128 * current_setting('block_size')::bigint
        or exists (select from redrive.deltas) or exists (select from redrive.group_deltas)
$$;

-- drop_from_history: delete copies, made at this time, of jobs that the caller did not end after
-- all.
-- Another session ended them between the copy and the ownership check, and has copied them, too.
create or replace function redrive.drop_from_history_v1(
    kept bigint[], ended bigint[], at timestamptz) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    delete from redrive.history h where h.id = any (kept) and h.id <> all (ended) and h.ended_at = at
$$;

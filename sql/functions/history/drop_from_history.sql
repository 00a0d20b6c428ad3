-- drop_from_history: of the jobs that were copied at this instant, those that were not ours to end:
-- somebody else ended them between the copy and our fence, and has copied them, too.
create or replace function redrive.drop_from_history_v1(
    kept bigint[], ended bigint[], at timestamptz) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    delete from redrive.history h where h.id = any (kept) and h.id <> all (ended) and h.ended_at = at
$$;

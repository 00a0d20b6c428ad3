-- drop_moved: forget the rows of moved jobs that the other cell has committed.
-- Their ids stay on record.
-- in:    parallel arrays: ids here; ids in the other cell, null for a job that was left out there
create or replace function redrive.drop_moved_v1(move uuid, ids bigint[], new_ids bigint[])
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    update redrive.moved_jobs m set data = null, new_id = v.new_id
    from unnest(ids, new_ids) as v(id, new_id)
    where m.id = v.id and m.move = drop_moved_v1.move and m.data is not null
$$;

-- drop_checkpoints: delete the checkpoints and the progress of jobs that have ended.
-- plan:  checkpoints_pkey, progress_pkey
create or replace function redrive.drop_checkpoints_v1(ids bigint[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    delete from redrive.checkpoints c where c.job = any (ids);
    delete from redrive.progress p where p.job = any (ids);
$$;

-- lost_workers: count dead workers whose jobs have not been taken back yet.
-- plan:  held_v1 once for each worker that is not alive; these are few
create or replace function redrive.lost_workers_v1() returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select count(*) from redrive.workers w
    where not redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)
      and exists (select from redrive.held_v1(array[w.id]))
$$;

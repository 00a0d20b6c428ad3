-- set_full_scan: store when the next claim may read a lane from its beginning again.
-- in:    kinds: of the worker that has done so now
-- locks: the row; the caller has locked the lane
-- plan:  full_scans_pkey from its end, where the only live row of the lane is
create or replace function redrive.set_full_scan_v1(
    queue text, priority smallint, lane smallint, kinds text[], next_at timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_variable
begin
    update redrive.full_scans s
    set n = s.n + 1, next_at = set_full_scan_v1.next_at, kinds = set_full_scan_v1.kinds
    where s.queue = set_full_scan_v1.queue and s.priority = set_full_scan_v1.priority
      and s.lane = set_full_scan_v1.lane
      and s.n = (select o.n from redrive.full_scans o
                 where o.queue = set_full_scan_v1.queue and o.priority = set_full_scan_v1.priority
                   and o.lane = set_full_scan_v1.lane
                 order by o.n desc limit 1);
    if not found then
        insert into redrive.full_scans (queue, priority, lane, n, next_at, kinds)
        values (queue, priority, lane, 1, next_at, kinds);
    end if;
end
$$;

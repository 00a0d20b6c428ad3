-- free_slots: free the slots of jobs that no longer run, and wake as many waiting jobs.
-- in:    jobs that this transaction has settled or taken back. The transaction must be short, and
--        never a handler's own
-- locks: the same as wake; waits for nothing
create or replace function redrive.free_slots_v1(ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    freed record;
begin
    for freed in
        with gone as (
            delete from redrive.limit_slots s where s.job = any (ids) returning s.name)
        select g.name, count(*)::int as n from gone g group by g.name order by g.name
    loop
        perform redrive.wake_v1(freed.name, least(freed.n, r.slots), true)
        from redrive.limit_room_v1(freed.name) r where r.slots is not null;
    end loop;
end
$$;

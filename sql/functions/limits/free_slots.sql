-- free_slots: these jobs run no longer: their slots go to as many of those that wait.
-- in:    jobs that were settled or taken back by this transaction, which is short: never that of a
--        handler
-- locks: what wake locks; waits for nobody
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

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
    freed text[];
    counts int[];
    next record;
    entries bigint :=      -- of the index of waits, which this transaction has read
        pg_stat_get_xact_tuples_returned('redrive.limit_waits_line_idx'::regclass);
begin
    with gone as (
        delete from redrive.limit_slots s where s.job = any (ids) returning s.name),
    counted as (select g.name, count(*)::int as n from gone g group by g.name)
    select array_agg(c.name order by c.name), array_agg(c.n order by c.name) into freed, counts
    from counted c;
    -- a statement of its own, which sees that they are gone
    for next in
        with awaited as materialized (
            select array_agg(f.name) as names, array_agg(f.n) as counts
            from unnest(freed, counts) as f(name, n)
            where (f.name in (select w.name from redrive.waited_for_v1(freed) w(name))) is true)
        select r.name, least(a.counts[r.number], r.slots) as n
        from awaited a cross join lateral redrive.limit_rooms_v1(a.names) r
        where r.slots is not null order by r.name
    loop
        perform redrive.wake_v1(next.name, next.n, true);
    end loop;
    -- An open snapshot keeps many jobs that waited, and perhaps none waits.
    entries := pg_stat_get_xact_tuples_returned('redrive.limit_waits_line_idx'::regclass) - entries;
    if entries > 2 * cardinality(ids) + 400 then
        perform redrive.advance_lines_v1(f.name) from unnest(freed) as f(name);
    end if;
end
$$;

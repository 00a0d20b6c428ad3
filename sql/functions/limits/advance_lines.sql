-- advance_lines: move on the places of the first jobs in the lines of a limit.
-- locks: these lines, skip locked
-- plan:  limit_waits_line_idx from the first job of each line
create or replace function redrive.advance_lines_v1(name text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    with held as materialized (
        select l.ctid as at, l.* from redrive.limit_lines l
        where l.name = advance_lines_v1.name for update skip locked),
    found as materialized (
        -- if no job waits, the next one becomes due later; see park
        select h.at, coalesce(w.due, clock_timestamp()) as due, coalesce(w.job, 0) as job
        from held h left join lateral (
            select w.due, w.job from redrive.limit_waits w
            where w.name = h.name and w.queue = h.queue and w.kind = h.kind
              and w.priority = h.priority and (w.due, w.job) >= (h.due, h.job)
            order by w.due, w.job limit 1) w on true
        where w.due is null or (w.due, w.job) > (h.due, h.job))
    update redrive.limit_lines l set due = f.due, job = f.job
    from found f where l.ctid = f.at;
end
$$;

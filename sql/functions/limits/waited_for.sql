-- waited_for: return the names, of the given ones, that jobs wait for.
-- plan:  limit_lines_name_idx, and limit_waits_line_idx from the first job of each line
create or replace function redrive.waited_for_v1(names text[]) returns setof text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    return query
    select n.name from unnest(names) as n(name)
    where exists (
        select from redrive.limit_lines l
        where l.name = n.name and exists (
            select from redrive.limit_waits w
            where w.name = l.name and w.queue = l.queue and w.kind = l.kind
              and w.priority = l.priority and (w.due, w.job) >= (l.due, l.job)
            offset 0)  -- not a join: planned for an empty table, it would read all that wait
        offset 0);
end
$$;

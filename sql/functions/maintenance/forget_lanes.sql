-- forget_lanes: delete the rows of lanes without jobs whose queue or priority is no longer known.
-- The next claim there inserts the row again. A lane in use keeps its row while it is empty.
-- Otherwise workers could not claim new jobs of that lane while this transaction is open.
-- locks: skip locked: no worker claims from a lane whose row is being deleted
-- plan:  lanes_pkey, jobs_due_idx, names_idx
create or replace function redrive.forget_lanes_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with pick as materialized (
        select l.queue, l.priority, l.lane from redrive.lanes l
        where not exists (select from redrive.jobs j
                          where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane)
          and not exists (select from redrive.names n
                          where n.queue = l.queue and n.priority = l.priority)
        limit batch for update skip locked),
    gone as (
        delete from redrive.lanes l using pick p
        where l.queue = p.queue and l.priority = p.priority and l.lane = p.lane returning 1),
    forgotten as (
        delete from redrive.full_scans s using pick p
        where s.queue = p.queue and s.priority = p.priority and s.lane = p.lane)
    select count(*)::int from gone
$$;

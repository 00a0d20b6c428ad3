-- forget_lanes: the rows of lanes that hold no job; the next claim there makes one anew.
-- locks: skip locked: nobody claims from a lane whose row goes
-- plan:  lanes_pkey, jobs_due_idx
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
        limit batch for update skip locked),
    gone as (
        delete from redrive.lanes l using pick p
        where l.queue = p.queue and l.priority = p.priority and l.lane = p.lane returning 1)
    select count(*)::int from gone
$$;

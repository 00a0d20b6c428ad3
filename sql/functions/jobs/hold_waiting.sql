-- hold_waiting: lock the jobs among these that no worker has claimed.
-- Then no worker can claim them until the end of the transaction, which may be long.
-- in:    waits: true: wait for sessions that have locked one of the jobs; false: leave out such a
--        job, and a job that cannot be settled now: see busy
-- out:   their ids
-- locks: the marks of their lanes, for key share, which waits for claims; then jobs, ascending
-- plan:  jobs_pkey; unclaimed
-- A claim writes no job. The mark of a lane tells it that another session holds jobs there. Then
-- the claim locks the jobs that it takes, skip locked. All other jobs of the lane are claimed as
-- usual.
create or replace function redrive.hold_waiting_v1(ids bigint[], waits boolean) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    held bigint[];
    busy bigint[];
begin
    perform from redrive.lane_marks m
    -- both lanes, because a job may come back and move to its front lane meanwhile
    where m.n = any (array(
        select redrive.lane_mark_v2(j.queue, j.priority, p.lane)
        from redrive.jobs j, unnest(array[j.lane, ~j.lane]) as p(lane)
        where j.id = any (hold_waiting_v1.ids)))
    order by m.n for key share;
    -- Do not lock the row of a claimed job: the session that settles it may want jobs that we hold.
    held := redrive.unclaimed_v1(hold_waiting_v1.ids);
    if waits then
        perform from redrive.jobs j where j.id = any (held) order by j.id for update;
    else
        held := array(select j.id from redrive.jobs j
                      where j.id = any (held) order by j.id for update skip locked);
        -- Also leave out a job whose dead letter or cancellation another session has locked.
        busy := redrive.busy_v1(held);
        held := array(select h.id from unnest(held) as h(id) where h.id <> all (busy));
    end if;
    -- Check again with a new snapshot, which shows a claim that locked a job before us.
    return redrive.unclaimed_v1(held);
end
$$;

-- hold_waiting: lock those of these jobs that nobody has claimed, so that nobody can until the end of
-- the transaction.
-- out:   their ids
-- locks: lanes, then jobs, both ascending; see cancel
-- plan:  jobs_pkey, claims_lane_idx
create or replace function redrive.hold_waiting_v1(ids bigint[]) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    held int;              -- lanes
    waiting bigint[];
begin
    -- A lane's first claim makes its row; whoever needs it before that makes it, too. Again where
    -- forget_lanes, which did not see these jobs, has taken one since.
    loop
        insert into redrive.lanes (queue, priority, lane)
        select distinct j.queue, j.priority, j.lane from redrive.jobs j
        where j.id = any (hold_waiting_v1.ids)
          and not exists (select from redrive.lanes l where l.queue = j.queue
                          and l.priority = j.priority and l.lane = j.lane)
        order by 1, 2, 3
        on conflict do nothing;
        perform from (
            select distinct j.queue, j.priority, j.lane from redrive.jobs j
            where j.id = any (hold_waiting_v1.ids)) v
        join redrive.lanes l on l.queue = v.queue and l.priority = v.priority and l.lane = v.lane
        order by l.queue, l.priority, l.lane
        for update of l;
        get diagnostics held = row_count;
        exit when held >= (select count(*) from (
            select distinct j.queue, j.priority, j.lane from redrive.jobs j
            where j.id = any (hold_waiting_v1.ids)) v);
    end loop;
    -- Only now, with a snapshot of its own: what was claimed before the lanes were ours is seen to
    -- be claimed. Its row is not locked, for whoever settles it may want those that we hold.
    select array_agg(h.id) into waiting
    from (select j.id from redrive.jobs j
          where j.id = any (hold_waiting_v1.ids) and j.worker is null
            and not exists (
                select from redrive.claims k
                where k.queue = j.queue and k.priority = j.priority and k.lane = j.lane
                  and j.id = any (k.ids))
          order by j.id for update) h;
    return waiting;
end
$$;

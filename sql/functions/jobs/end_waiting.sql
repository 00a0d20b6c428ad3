-- end_waiting: end, as cancelled, the jobs among these that no worker has claimed.
-- in:    waits: true: wait for sessions that have locked one of the jobs; false: leave such a job
--        out
-- out:   the ids that were ended
-- locks: as hold_waiting; then the rows of the jobs in campaigns over failing jobs, skip locked
-- plan:  jobs_pkey, claims_lane_idx, campaign_jobs_redriven_idx
create or replace function redrive.end_waiting_v1(ids bigint[], waits boolean) returns bigint[]
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
    waiting bigint[];
    ended bigint[];
    queues text[];         -- of the jobs that have an ordering key
    keys text[];
    noted bigint[];        -- the jobs that may have left a checkpoint
begin
    waiting := redrive.hold_waiting_v1(end_waiting_v1.ids, end_waiting_v1.waits);
    if exists (select from redrive.history_queues) then
        perform redrive.keep_history_v1('cancelled', null, waiting, null, clock_timestamp());
    end if;
    with gone as (
        delete from redrive.jobs j
        where j.id = any (waiting)
        returning j.id, j.queue, j.kind, j.ordering_key, j.failed_at, j.redrives, j.noted,
                  j.batch),
    resolved as (
        update redrive.dead_letters d
        set state = 'resolved',
            outcome = case when (d.id, d.redrives) in (select g.id, g.redrives - 1 from gone g)
                           then 'cancelled' else d.outcome end
        where d.state is not distinct from 'redriven'
          and d.id = any (array(select g.id from gone g where g.redrives > 0))
        returning d.queue, d.kind),
    forgotten as (
        delete from redrive.failures f
        where f.job = any (array(select g.id from gone g
                                 where g.failed_at is not null and g.redrives = 0))),
    unnoted as (
        delete from redrive.side_effects e
        where e.job = any (array(select g.id from gone g where g.noted and g.redrives = 0))),
    batched as (
        insert into redrive.batch_deltas (batch, cancelled)
        select g.batch, count(*) from gone g where g.batch is not null group by g.batch),
    -- Count them as claimed, too: the numbers of waiting and running jobs come from these sums.
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select g.queue, g.kind, e.event, '', count(*)
        from gone g cross join (values ('claimed'), ('cancelled')) as e(event)
        group by g.queue, g.kind, e.event
        union all
        select g.queue, g.kind, 'outcome', 'cancelled', count(*) from gone g
        where g.redrives > 0 group by g.queue, g.kind
        union all
        select r.queue, r.kind, 'resolved', '', count(*) from resolved r group by r.queue, r.kind)
    select coalesce(array_agg(g.id order by g.id), '{}'),
           array_agg(g.id) filter (where g.noted or g.redrives > 0),
           array_agg(g.queue) filter (where g.ordering_key is not null),
           array_agg(g.ordering_key) filter (where g.ordering_key is not null)
    into ended, noted, queues, keys from gone g;
    perform redrive.drop_checkpoints_v1(noted) where noted is not null;
    delete from redrive.limit_waits w where w.job = any (ended);
    -- A retry counts a job that is gone as a success, unless this says that it was cancelled.
    with cancelled as materialized (
        select j.campaign, j.n from redrive.campaigns c
        join redrive.campaign_jobs j on j.campaign = c.id and j.state = 'redriven'
        where c.id in (select redrive.live_campaigns_v1()) and c.filter ? 'failing'
          and j.id = any (ended)
        for update of j skip locked)
    update redrive.campaign_jobs j set deliveries = -1
    from cancelled c where j.campaign = c.campaign and j.n = c.n;
    perform redrive.wake_keys_v1(queues, keys);
    return ended;
end
$$;

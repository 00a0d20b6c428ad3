-- take_back: turn released jobs of a campaign back into open dead letters with their whole history.
-- Only jobs that no worker has begun since are taken back.
-- out:   the ids of these jobs
-- locks: as hold_waiting, then dead letters, ascending
-- plan:  jobs_pkey, dead_letters_pkey
create or replace function redrive.take_back_v1(campaign bigint, ids bigint[]) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    waiting bigint[];
    taken bigint[];
    queues text[];         -- of the jobs that have an ordering key
    keys text[];
begin
    waiting := redrive.hold_waiting_v1(take_back_v1.ids, true);
    with pick as materialized (
        select d.id, d.redrives from redrive.dead_letters d
        join redrive.jobs j on j.id = d.id and j.redrives = d.redrives + 1
        where d.id = any (waiting) and d.campaign = take_back_v1.campaign
          and d.state is not distinct from 'redriven'
          -- a job that was tried since stays: its new attempts would be lost
          and j.deliveries = d.deliveries
        order by d.id for update of d),
    gone as (
        delete from redrive.jobs j using pick p where j.id = any (waiting) and j.id = p.id
        returning j.id, j.queue, j.kind, j.batch),
    opened as (
        update redrive.dead_letters d
        set state = 'open', settled_at = null, campaign = null
        from pick p where d.id = any (waiting) and d.id = p.id and d.redrives = p.redrives
        returning d.id, d.queue, d.kind, d.reason, d.ordering_key),
    batched as (
        insert into redrive.batch_deltas (batch, dead)
        select g.batch, count(*) from gone g where g.batch is not null group by g.batch),
    -- as end_waiting does, and as reopen does
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select g.queue, g.kind, e.event, '', count(*)
        from gone g cross join (values ('claimed'), ('cancelled')) as e(event)
        group by g.queue, g.kind, e.event
        union all
        select g.queue, g.kind, 'outcome', 'cancelled', count(*) from gone g
        group by g.queue, g.kind
        union all
        select o.queue, o.kind, 'reopened', o.reason, count(*) from opened o
        group by o.queue, o.kind, o.reason)
    select coalesce(array_agg(o.id order by o.id), '{}'),
           array_agg(o.queue) filter (where o.ordering_key is not null),
           array_agg(o.ordering_key) filter (where o.ordering_key is not null)
    into taken, queues, keys from opened o;
    delete from redrive.limit_waits w where w.job = any (taken);
    perform redrive.wake_keys_v1(queues, keys);
    return taken;
end
$$;

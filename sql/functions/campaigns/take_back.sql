-- take_back: of these jobs, put back by this campaign, those that nobody has begun since: each is the
-- open dead letter again that it was, with its whole history.
-- out:   their ids
-- locks: lanes, then jobs, then dead letters, each ascending
-- plan:  jobs_pkey, dead_letters_pkey
create or replace function redrive.take_back_v1(campaign bigint, ids bigint[]) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    waiting bigint[];
    taken bigint[];
begin
    waiting := redrive.hold_waiting_v1(take_back_v1.ids);
    with pick as materialized (
        select d.id, d.redrives from redrive.dead_letters d
        join redrive.jobs j on j.id = d.id and j.redrives = d.redrives + 1
        where d.id = any (waiting) and d.campaign = take_back_v1.campaign
          and d.state is not distinct from 'redriven'
          -- tried since: what it went through would be lost
          and j.deliveries = d.deliveries
        order by d.id for update of d),
    gone as (
        delete from redrive.jobs j using pick p where j.id = any (waiting) and j.id = p.id
        returning j.id, j.queue, j.kind, j.ordering_key, j.batch),
    opened as (
        update redrive.dead_letters d
        set state = 'open', settled_at = null, campaign = null
        from pick p where d.id = any (waiting) and d.id = p.id and d.redrives = p.redrives
        returning d.id, d.queue, d.kind, d.reason, d.ordering_key, d.holds_key),
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
        group by o.queue, o.kind, o.reason),
    promoted as (
        update redrive.jobs n set run_at = clock_timestamp()
        from (select distinct g.queue, g.ordering_key from gone g
              where g.ordering_key is not null) g
        where n.id = (select o.id from redrive.jobs o
                      where o.queue = g.queue and o.ordering_key = g.ordering_key
                        and o.id not in (select e.id from gone e)
                      order by o.id limit 1)
          and n.worker is null and (n.run_at < clock_timestamp() or n.run_at = 'infinity')
          and not redrive.is_key_held_v1(n.queue, n.ordering_key, n.id)
          and not exists (select from opened o
                          where o.queue = n.queue and o.ordering_key = n.ordering_key
                            and o.holds_key and o.id < n.id)
          and not exists (select from redrive.running_keys r
                          where r.queue = g.queue and r.ordering_key = g.ordering_key))
    select coalesce(array_agg(o.id order by o.id), '{}') into taken from opened o;
    delete from redrive.limit_waits w where w.job = any (taken);
    return taken;
end
$$;

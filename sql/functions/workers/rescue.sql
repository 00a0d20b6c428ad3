-- rescue: take jobs back from workers whose heartbeat stopped, and settle them as lost.
-- in:    ttl: for workers that said none of their own
--        max_losses: of a release before; what is proven counts, not how often it happened
-- out:   counts
-- locks: lost worker rows exclusively (waits for no claim: skip locked), then their jobs, skip
--        locked
-- plan:  a scan of the live table, once per lost worker: that is the price of not indexing
--        `worker`, paid per crash and not per job. With nobody lost it ends after one look at a
--        table of a few dozen rows.
create or replace function redrive.rescue_v1(
    ttl interval, max_losses int, out lost int, out rescued int, out buried int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    lost_ids int[];
    held record;
begin
    -- Marking first closes the race with a claim: it holds its worker row for key share and looks
    -- at lost_at again. After a restart of the server everybody gets one ttl to be heard again: the
    -- outage was not theirs.
    update redrive.workers w set lost_at = clock_timestamp()
    where w.id in (
        select s.id from redrive.workers s
        where s.lost_at is null
          -- its own ttl: one who beats more rarely is not lost for whoever looks more often
          and greatest(s.seen_at, pg_postmaster_start_time())
              < clock_timestamp() - coalesce(s.ttl, rescue_v1.ttl)
        for update skip locked);
    select array_agg(s.id) into lost_ids
    from (select w.id from redrive.workers w where w.lost_at is not null for update skip locked) s;
    lost := coalesce(cardinality(lost_ids), 0); rescued := 0; buried := 0;
    if lost = 0 then
        return;
    end if;
    select array_agg(v.id order by v.id) as ids, array_agg(h.worker order by v.id) as workers,
           array_agg(j.deliveries order by v.id) as deliveries,
           array_agg(v.outcome order by v.id) as outcomes,
           array_agg(v.reason order by v.id) as reasons,
           array_agg(v.refund order by v.id) as refunds,
           array_agg(v.losses order by v.id) as losses,
           array_agg(v.failure order by v.id) as failures, count(*)::int as n
    into held
    from (
        select l.worker, array_agg(l.id) as ids
        from (
            select j.worker, j.id from redrive.jobs j
            where j.worker = any (lost_ids)
            order by j.id
            -- a handler of a paused worker may hold one in its own transaction
            for update skip locked) l
        group by l.worker) h,
    redrive.judge_loss_v1(h.worker, h.ids) v
    join redrive.jobs j on j.id = v.id;
    select count(*) filter (where o.outcome = 'rescue'), count(*) filter (where o.outcome = 'dead')
    into rescued, buried
    from redrive.settle_v1(
        held.workers, held.ids, held.deliveries, held.outcomes,
        array_fill(null::timestamptz, array[held.n]), array_fill(0::float8, array[held.n]),
        held.refunds, held.losses, held.failures, held.reasons) s(id)
    join unnest(held.ids, held.outcomes) o(id, outcome) on o.id = s.id;
    -- What was locked stays with its lost worker and comes back with the next sweep.
    delete from redrive.workers w
    where w.id = any (lost_ids) and not exists (select from redrive.jobs j where j.worker = w.id);
end
$$;

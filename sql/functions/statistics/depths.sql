-- depths: compute what each queue holds from the counters, with few reads of the jobs.
-- To tell ready jobs from later ones, it reads at most `cap` entries of each lane's index, and no
-- row where vacuum has been. Later jobs are counted first: at the beginning of a lane that drains,
-- there may be a dead entry of each job that is done. If that did not stop at the cap, the ready ones
-- are the rest and are not read. The numbers are exact unless both sides of a queue exceed the cap.
-- Then both are lower bounds.
-- The oldest ready job is looked for behind the place of the lane's newest claim first, if that
-- claim's worker takes all kinds that wait. A job before it came late, and the next full scan finds
-- it.
create or replace function redrive.depths_v1()
returns table (queue text, ready bigint, scheduled bigint, retrying bigint, running bigint,
               dead bigint, paused boolean, oldest_ready_seconds float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    first_claim bigint := 0;
begin
    -- A standby cannot read the unlogged table with the first live claim. It reads all claims.
    if not pg_is_in_recovery() then
        first_claim := redrive.claims_from_v1(null);
    end if;
    return query
    with by_kind as materialized (
        select t.queue, t.kind,
               sum(case when event in ('enqueued', 'redriven') then n
                        when event in ('completed', 'cancelled', 'dead') then -n
                        else 0 end)::bigint as live,
               sum(case when event = 'claimed' then n
                        when event in ('completed', 'cancelled', 'dead',
                                       'retried', 'released', 'rescued') then -n
                        else 0 end)::bigint as running,
               sum(case when event in ('dead', 'imported', 'reopened') then n
                        when event in ('redriven', 'dismissed', 'purged') then -n
                        else 0 end)::bigint as dead
        from redrive.totals t group by t.queue, t.kind),
    sums as (
        select b.queue, sum(b.live)::bigint as live, sum(b.running)::bigint as running,
               sum(b.dead)::bigint as dead
        from by_kind b group by b.queue),
    known as (
        select s.queue, s.live, s.running, s.dead from sums s
        union all
        select q.queue, 0, 0, 0 from redrive.queues q
        where not exists (select from sums s where s.queue = q.queue)),
    every_lane as materialized (select l.queue, l.priority, l.lane from redrive.all_lanes_v1() l),
    -- One call reads 10,000 entries of all lanes together, or a hundred of each lane. Front lanes do
    -- not count, because most are empty.
    reads as materialized (
        select greatest(100, least(10000, 10000 / greatest(count(*), 1))) as cap
        from every_lane l where l.lane >= 0),
    later as materialized (
        select l.queue, sum(c.n) as n, bool_or(c.n >= (select r.cap from reads r)) as cut
        from every_lane l,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at > now()
            order by j.run_at limit (select r.cap from reads r)) entries) c
        group by l.queue),
    due as (  -- including running ones, because a claimed job keeps its run_at
        select l.queue, sum(c.n) as n, bool_or(c.n >= (select r.cap from reads r)) as cut
        from later o join every_lane l on l.queue = o.queue,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at <= now()
            order by j.run_at limit (select r.cap from reads r)) entries) c
        where o.cut
        group by l.queue),
    split as materialized (
        select k.queue, greatest(k.running, 0) as running, greatest(k.dead, 0) as dead,
               greatest(case when l.cut then d.n - k.running
                             else k.live - k.running - coalesce(l.n, 0) end, 0)::bigint as ready,
               greatest(case when l.cut and not d.cut then k.live - d.n
                             else coalesce(l.n, 0) end, 0)::bigint as later,
               coalesce(l.cut and d.cut, false) as is_cut,
               (select count(*) from (
                   select from redrive.jobs j
                   where j.fingerprint = any (f.fingerprints) and j.queue = k.queue
                     and j.failed_at is not null and j.run_at > now()
                   limit (select r.cap from reads r)) r) as retrying
        from known k left join later l on l.queue = k.queue left join due d on d.queue = k.queue
        left join redrive.failing_causes_v1() f on f.queue = k.queue),
    -- One array, because each job would be searched in all claims if the planner expects many.
    claimed as materialized (
        select array(select c.id from redrive.claims k, unnest(k.ids) as c(id)
                     where k.id >= first_claim) as ids),
    places as (
        select l.queue, l.priority, l.lane, k.upto, k.upto_id
        from split s join every_lane l on l.queue = s.queue
        left join lateral (
            select k.upto, k.upto_id, k.kinds from redrive.claims k
            where k.queue = l.queue and k.priority = l.priority and k.lane = l.lane
            order by k.id desc limit 1) k
            on not exists (select from by_kind b
                           where b.queue = l.queue and b.live > b.running
                             and not redrive.handles_v1(k.kinds, b.kind))
        where s.ready > 0 or s.is_cut),
    oldest as (
        select p.queue, min(o.run_at) as run_at
        from places p, lateral (
            (select j.run_at from redrive.jobs j
             where j.queue = p.queue and j.priority = p.priority and j.lane = p.lane
               and (j.run_at, j.id) > (p.upto, p.upto_id) and j.run_at <= now()
               and j.id not in (select c.id from claimed k, unnest(k.ids) as c(id))
             order by j.run_at, j.id limit 1)
            union all
            (select j.run_at from redrive.jobs j
             where j.queue = p.queue and j.priority = p.priority and j.lane = p.lane
               and j.run_at <= now()
               and j.id not in (select c.id from claimed k, unnest(k.ids) as c(id))
             order by j.run_at, j.id limit 1)
            limit 1) o
        group by p.queue)
    select s.queue, s.ready, greatest(s.later - s.retrying, 0), s.retrying, s.running, s.dead,
           exists (select from redrive.queues q
                   where q.queue = s.queue and q.paused_at is not null),
           coalesce(extract(epoch from clock_timestamp() - o.run_at)::float8, 0)
    from split s left join oldest o on o.queue = s.queue
    order by s.queue;
end
$$;

-- depths: compute what each queue holds from the counters, with few reads of the jobs.
-- To tell ready jobs from later ones, it reads at most `cap` entries of each lane's index, and no
-- row where vacuum has been. Due jobs are counted first. If that did not stop at the cap, the later
-- ones are the rest and are not read. The numbers are exact unless both sides of a queue exceed the
-- cap; then both are lower bounds.
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
    cap int;
    first_claim bigint := 0;
begin
    -- A standby cannot read the unlogged table with the first live claim. It reads all claims.
    if not pg_is_in_recovery() then
        first_claim := redrive.claims_from_v1(null);
    end if;
    -- one call reads 10,000 entries of all lanes together, or a hundred of each lane
    select greatest(100, least(10000, 10000 / greatest(count(*), 1))) into cap
    from redrive.all_lanes_v1();
    return query
    with sums as (
        select t.queue,
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
        from redrive.totals t group by t.queue),
    known as (
        select s.queue, s.live, s.running, s.dead from sums s
        union all
        select q.queue, 0, 0, 0 from redrive.queues q
        where not exists (select from sums s where s.queue = q.queue)),
    claimed as materialized (
        select c.id from redrive.claims k, unnest(k.ids) as c(id)
        where k.id >= first_claim),
    every_lane as materialized (select l.queue, l.priority, l.lane from redrive.all_lanes_v1() l),
    due as materialized (  -- including running ones, because a claimed job keeps its run_at
        select l.queue, sum(c.n) as n, bool_or(c.n >= cap) as cut, min(o.run_at) as oldest
        from every_lane l,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at <= now()
            order by j.run_at limit cap) entries) c
        left join lateral (
            select j.run_at from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at <= now()
              and j.id not in (select c.id from claimed c)
            order by j.run_at, j.id limit 1) o on true
        group by l.queue),
    later as (
        select l.queue, sum(c.n) as n, bool_or(c.n >= cap) as cut
        from due d join every_lane l on l.queue = d.queue,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at > now()
            order by j.run_at limit cap) entries) c
        where d.cut
        group by l.queue),
    split as (
        select k.queue, greatest(k.running, 0) as running, greatest(k.dead, 0) as dead, d.oldest,
               greatest(case when d.cut and not l.cut then k.live - k.running - l.n
                             else coalesce(d.n, 0) - k.running end, 0) as ready,
               greatest(case when d.cut then l.n else k.live - coalesce(d.n, 0) end, 0) as later,
               (select count(*) from (
                   select from redrive.jobs j
                   where j.queue = k.queue and j.failed_at is not null and j.run_at > now()
                   order by j.run_at limit cap) r) as retrying
        from known k left join due d on d.queue = k.queue left join later l on l.queue = k.queue)
    select s.queue, s.ready::bigint, greatest(s.later - s.retrying, 0)::bigint, s.retrying,
           s.running, s.dead,
           exists (select from redrive.queues q
                   where q.queue = s.queue and q.paused_at is not null),
           coalesce(extract(epoch from clock_timestamp() - s.oldest)::float8, 0)
    from split s
    order by s.queue;
end
$$;

-- take_chore: whoever moves the clock of a chore does it; no leader is elected.
create or replace function redrive.take_chore_v1(chore text, every interval) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with taken as (
        update redrive.chores c set ran_at = clock_timestamp()
        where c.name = (select o.name from redrive.chores o
                        where o.name = chore and o.ran_at < clock_timestamp() - take_chore_v1.every for update skip locked)
        returning 1)
    select exists (select from taken)
$$;

-- fold: add the deltas to the tallies.
create or replace function redrive.fold_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with moved as (delete from redrive.deltas returning queue, kind, event, reason, n),
    added as (
        insert into redrive.tallies as t (queue, kind, event, reason, n)
        select queue, kind, event, reason, sum(n) from moved group by queue, kind, event, reason
        order by queue, kind, event, reason
        on conflict (queue, kind, event, reason) do update set n = t.n + excluded.n
        returning 1)
    select count(*)::int from moved
$$;

-- totals: every counter as it stands, exact in the snapshot of the caller.
create or replace view redrive.totals as
    select queue, kind, event, reason, sum(n)::bigint as n
    from (select queue, kind, event, reason, n from redrive.tallies
          union all
          select queue, kind, event, reason, n from redrive.deltas) both_tables
    group by queue, kind, event, reason;

-- sample: remember the counters at the start of this minute, once, and forget what is older than an hour.
create or replace function redrive.sample_v1() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    this_minute constant timestamptz := date_trunc('minute', clock_timestamp());
begin
    if exists (select from redrive.samples s where s.minute = this_minute) then
        return;
    end if;
    insert into redrive.samples (minute, queue, dead)
    select this_minute, t.queue, sum(t.n) filter (where t.event = 'dead') from redrive.totals t
    group by t.queue having sum(t.n) filter (where t.event = 'dead') is not null
    on conflict do nothing;
    delete from redrive.samples s where s.minute < this_minute - interval '1 hour';
end
$$;

-- added_per_minute: dead letters added in the last full minute; 0 for a queue while two minutes are not on record.
create or replace function redrive.added_per_minute_v1() returns table (queue text, added float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with minutes as (select distinct s.minute from redrive.samples s order by s.minute desc limit 2),
    span as (
        select max(minute) as until, min(minute) as since from minutes
        having max(minute) > min(minute) and max(minute) > clock_timestamp() - interval '2 minutes'),
    grown as (
        select n.queue,
               (n.dead - coalesce(o.dead, 0)) / greatest(extract(epoch from p.until - p.since) / 60, 1)::float8 as added
        from span p
        join redrive.samples n on n.minute = p.until
        left join redrive.samples o on o.minute = p.since and o.queue = n.queue)
    select q.queue, coalesce(g.added, 0)
    from (select t.queue from redrive.tallies t union select t.queue from redrive.deltas t) q left join grown g on g.queue = q.queue
$$;

-- done_chore: a CronJob's run leaves its mark, so that its absence can be seen without looking at Kubernetes.
create or replace function redrive.done_chore_v1(chore text, every interval) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.chores as c (name, ran_at, every) values (chore, clock_timestamp(), every)
    on conflict (name) do update set ran_at = excluded.ran_at, every = coalesce(excluded.every, c.every)
$$;

-- oldest_dead: when each queue's oldest open dead letter died.
create or replace function redrive.oldest_dead_v1() returns table (queue text, age_seconds float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select q.queue, extract(epoch from clock_timestamp() - d.died_at)::float8
    from (select t.queue from redrive.tallies t where t.event = 'dead'
          union select t.queue from redrive.deltas t where t.event = 'dead') q,
    lateral (select o.died_at from redrive.dead_letters o
             where o.state = 'open' and o.queue = q.queue order by o.died_at limit 1) d
$$;

-- depths: what each queue holds, by arithmetic over the counters.
-- Telling ready from later needs a look at the jobs: at most `cap` entries of each lane's index, and no row where vacuum
-- has been. Due ones are counted first; when that did not stop at the cap, the later ones are what is left and nobody
-- looks at them. Exact unless both sides of one queue are larger than the cap; then both are at least what is said.
create or replace function redrive.depths_v1()
returns table (queue text, ready bigint, scheduled bigint, retrying bigint, running bigint, dead bigint,
               paused boolean, oldest_ready_seconds float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    cap int;
begin
    -- each look goes over 10,000 entries of all lanes together, or a hundred of each lane
    select greatest(100, least(10000, 10000 / greatest(count(*), 1))) into cap from redrive.all_lanes_v1();
    return query
    with sums as (
        select t.queue,
               sum(case when event in ('enqueued', 'redriven', 'adjusted') then n
                        when event in ('completed', 'cancelled', 'dead') then -n else 0 end)::bigint as live,
               sum(case when event = 'claimed' then n
                        when event in ('completed', 'cancelled', 'dead', 'retried', 'released', 'rescued') then -n
                        else 0 end)::bigint as running,
               sum(case when event = 'dead' then n
                        when event in ('redriven', 'dismissed', 'purged') then -n else 0 end)::bigint as dead
        from redrive.totals t group by t.queue),
    known as (
        select s.queue, s.live, s.running, s.dead from sums s
        union all
        select q.queue, 0, 0, 0 from redrive.queues q where not exists (select from sums s where s.queue = q.queue)),
    lanes as materialized (select l.queue, l.priority, l.lane from redrive.all_lanes_v1() l),
    due as materialized (  -- those that run among them: whoever is claimed keeps its run_at
        select l.queue, sum(c.n) as n, bool_or(c.n >= cap) as cut, min(o.run_at) as oldest
        from lanes l,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane and j.run_at <= now()
            order by j.run_at limit cap) entries) c
        left join lateral (
            select j.run_at from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and j.run_at <= now() and j.worker is null
            order by j.run_at limit 1) o on true
        group by l.queue),
    later as (
        select l.queue, sum(c.n) as n, bool_or(c.n >= cap) as cut
        from due d join lanes l on l.queue = d.queue,
        lateral (select count(*) as n from (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane and j.run_at > now()
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
    select s.queue, s.ready::bigint, greatest(s.later - s.retrying, 0)::bigint, s.retrying, s.running, s.dead,
           exists (select from redrive.queues q where q.queue = s.queue and q.paused_at is not null),
           coalesce(extract(epoch from clock_timestamp() - s.oldest)::float8, 0)
    from split s
    order by s.queue;
end
$$;

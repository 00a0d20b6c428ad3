-- look_at_campaign: count what became of the released jobs, and read all that the next step depends
-- on.
-- out:   null if another worker is stepping the campaign, or if it is over; else the fields of
--        redrive.dead_letters.campaigns.pace.Seen
-- locks: the campaign, skip locked: while one worker steps it, the others have nothing to do
-- plan:  campaign_jobs_redriven_idx, dead_letters_pkey, jobs_pkey, jobs_due_idx, marks_at_idx
--        The cost grows with the jobs in flight, not with the size of the campaign
create or replace function redrive.look_at_campaign_v1(campaign bigint) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    c redrive.campaigns;
    is_retry boolean;      -- of failing jobs
    good int;
    dead int;
    gone int;
    waiting int;
    unbegun int;
    released_at timestamptz;   -- the first of these
    in_window int;         -- successive releases that are judged together
    windows int[];         -- the windows in which jobs died again
    its_kinds text[];
    its_breakers text[];
    queues text[];         -- where its jobs run
begin
    select * into c from redrive.campaigns o
    where o.id = look_at_campaign_v1.campaign and o.planned_login is not null
      and (o.state in ('waiting', 'canary', 'ramp', 'running')
           or o.redriven > o.succeeded + o.dead_again + o.cancelled)
    for update skip locked;
    if not found then
        return null;
    end if;
    is_retry := c.filter ? 'failing';
    -- Allow ten deaths in a window at least, because a few may be chance.
    in_window := greatest(100, ceil(10 / c.abort_share));
    with ended as materialized (
        select j.n, coalesce(d.outcome, 'cancelled') as outcome
        from redrive.campaign_jobs j
        left join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
        where j.campaign = c.id and j.state = 'redriven' and not is_retry
          -- no dead letter is left: it was purged
          and (d.outcome is not null or d.id is null)
        union all
        select r.n, r.outcome from redrive.retried_v1(c.id, c.created_at) r where is_retry),
    marked as (
        update redrive.campaign_jobs j set state = e.outcome
        from ended e where j.campaign = c.id and j.n = e.n)
    select count(*) filter (where e.outcome = 'succeeded'),
           count(*) filter (where e.outcome = 'dead_again'),
           count(*) filter (where e.outcome = 'cancelled'),
           array_agg(distinct (e.n - 1) / in_window) filter (where e.outcome = 'dead_again')
    into good, dead, gone, windows from ended e;
    if good + dead + gone > 0 then
        update redrive.campaigns o
        set succeeded = o.succeeded + good, dead_again = o.dead_again + dead,
            cancelled = o.cancelled + gone,
            round_ended = o.round_ended + good + dead, round_dead = o.round_dead + dead,
            window_dead = greatest(o.window_dead, (
                select max(d.dead) from unnest(windows) as w(n), lateral (
                    select count(*) from redrive.campaign_jobs j
                    where j.campaign = o.id and j.n > o.judged_from
                      and j.n > w.n * in_window and j.n <= (w.n + 1) * in_window
                      and j.state = 'dead_again') as d(dead)))
        where o.id = c.id returning * into c;
    end if;
    -- Count the released jobs that no worker has begun, and those that are due or parked. The claimed
    -- jobs are one array, because each job would be searched in all claims if the planner expects many.
    select count(*) filter (where b.run_at <= clock_timestamp() or b.run_at = 'infinity'), count(*),
           min(d.settled_at)
    into waiting, unbegun, released_at
    from redrive.campaign_jobs j
    left join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives and not is_retry
    join redrive.jobs b on b.id = j.id
    where j.campaign = c.id and j.state = 'redriven'
      and b.deliveries = case when is_retry then j.deliveries else d.deliveries end
      and b.id not in (select h.id from unnest(array(
          select i.id from redrive.claims k, unnest(k.ids) as i(id)
          where k.id >= redrive.claims_from_v1(null))) as h(id));
    its_kinds := array(select jsonb_array_elements_text(c.plan -> 'kinds'));
    its_breakers := array(
        select b.name from redrive.breakers b
        where c.conditions -> 'breakers' ? b.name or b.name in (
            select jsonb_array_elements_text(w.depends_on -> k.kind)
            from redrive.workers w, unnest(its_kinds) as k(kind) where w.lost_at is null));
    queues := case when c.conditions ? 'to_queue' then array[c.conditions ->> 'to_queue']
                   else array(select jsonb_array_elements_text(c.plan -> 'queues')) end;
    return jsonb_build_object(
        'is_retry', is_retry, 'step', c.step, 'state', c.state, 'said', c.said, 'matched', c.matched,
        'place', c.place,
        'in_flight', c.redriven - c.succeeded - c.dead_again - c.cancelled,
        'unclaimed', waiting, 'unbegun', unbegun,
        'unbegun_for', coalesce(extract(epoch from clock_timestamp() - released_at)::float8, 0),
        'fed', c.round_fed, 'ended', c.round_ended, 'dead', c.round_dead,
        'window', in_window, 'window_dead', c.window_dead, 'fed_at', extract(epoch from c.fed_at)::float8,
        'active_at', extract(epoch from c.active_at)::float8,
        'now', extract(epoch from clock_timestamp())::float8,
        'kinds', cardinality(its_kinds), 'kind_rates', redrive.redrive_rates_v1(its_kinds),
        'rate', c.rate, 'canaries', c.canaries, 'abort_share', c.abort_share,
        'not_before', extract(epoch from c.not_before)::float8,
        'wanted_breakers', coalesce(c.conditions -> 'breakers', '{}'),
        'wanted_version', c.conditions ->> 'version',
        'breakers', (select coalesce(jsonb_object_agg(b.name, b.state), '{}')
                     from redrive.breakers b where b.name = any (its_breakers)),
        'recoveries', (
            select coalesce(jsonb_object_agg(r.name, r.n), '{}')
            from (select m.name, count(*) as n from redrive.marks m
                  where m.at > clock_timestamp() - interval '10 min'
                    and m.what = 'breaker closed' and m.name = any (its_breakers)
                  group by m.name) r),
        'versions', (select coalesce(jsonb_agg(distinct w.version), '[]')
                     from redrive.workers w, unnest(its_kinds) as k(kind)
                     where w.lost_at is null and redrive.handles_v1(w.kinds, k.kind)),
        'late_before', c.late_before, 'held_since', extract(epoch from c.held_since)::float8,
        -- Jobs that a campaign released do not count here; the number that waits is bounded anyway.
        -- Jobs that no worker handles do not count either; they wait for a deploy.
        'others_late', (
            select coalesce(extract(epoch from clock_timestamp() - min(o.run_at))::float8, 0)
            from redrive.next_lanes_v1(queues, '', 0, 0, 2147483647) l,
            lateral (
                select j.run_at
                from (select b.id, b.run_at, b.redrives, b.failed_at, b.kind from redrive.jobs b
                      where b.queue = l.queue and b.priority = l.priority and b.lane = l.lane
                        and b.run_at <= now()
                      order by b.run_at, b.id limit 10000) j
                where j.redrives = 0 and not (is_retry and j.failed_at is not null)
                  and (l.queue, j.kind) not in (
                      select u.queue, u.kind from redrive.unhandled_v1() u)
                  and j.id not in (select h.id from unnest(array(
                      select i.id from redrive.claims k, unnest(k.ids) as i(id)
                      where k.id >= redrive.claims_from_v1(null))) as h(id))
                order by j.run_at, j.id limit 1) o
            where not exists (select from redrive.queues q
                              where q.queue = l.queue and q.paused_at is not null)));
end
$$;

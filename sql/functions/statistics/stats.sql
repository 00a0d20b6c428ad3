-- stats: return all exported figures of the database as one JSON object, at most `max_age` old.
-- One caller at a time computes them, and the others get the previous snapshot at once. So a
-- hundred replicas cost as much as one. If that caller does not finish, for example because its
-- transaction stays open, the others compute the figures for themselves once the snapshot is ten
-- seconds old, and do not store them.
-- Nothing here counts a big table: counters are summed from the tallies, and ages are index probes.
-- Only a limited number of names is shown (shown.sql); the others are 'other'. The snapshot stores
-- the shown names, so that all who serve it agree, and no series changes its name later.
create or replace function redrive.stats_v1(max_age interval) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = on
set jit = off
as $$
declare
    found_body jsonb;
    found_at timestamptz;
    shown jsonb;
    kinds text[];
    queues text[];
    failing jsonb;
    is_ours boolean;
begin
    select s.body, s.taken_at into found_body, found_at from redrive.snapshots s;
    -- ignore a snapshot from a clock that was ahead
    if found_at between clock_timestamp() - max_age and clock_timestamp() then
        return found_body;
    end if;
    perform from redrive.snapshots s where s.taken_at = found_at for update skip locked;
    is_ours := found;
    if not is_ours and found_at between clock_timestamp() - greatest(max_age, interval '10 seconds')
                                and clock_timestamp() then
        return found_body;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    shown := redrive.shown_v1(found_body);
    kinds := array(select jsonb_array_elements_text(shown -> 'kinds'));
    queues := array(select jsonb_array_elements_text(shown -> 'queues'));
    failing := redrive.failing_figures_v1(found_body -> 'failing', queues, shown -> 'pairs');
    found_body := shown || jsonb_build_object(
        'failing', failing,
        'taken_at', extract(epoch from clock_timestamp())::float8,
        'totals', (with bases as (
                       select b ->> 0 as queue, b ->> 1 as kind, b ->> 2 as event,
                              b ->> 3 as reason, (b ->> 4)::bigint as n
                       from jsonb_array_elements(shown -> 'bases') b),
                   counted as (
                       select t.queue, t.kind, t.event, t.reason, t.n from redrive.totals t
                       union all
                       select b.queue, b.kind, b.event, b.reason, -b.n from bases b
                       union all
                       select null, b.kind, b.event, b.reason, b.n from bases b),
                   pairs as (
                       select p ->> 0 as queue, p ->> 1 as kind
                       from jsonb_array_elements(shown -> 'pairs') p),
                   named as (
                       select coalesce(q.queue, 'other') as queue,
                              case when c.kind = '' then ''
                                   when q.queue is null then coalesce(k.kind, 'other')
                                   else coalesce(p.kind, 'other') end as kind,
                              c.event, c.reason, sum(c.n) as n
                       from counted c
                       left join unnest(queues) as q(queue) on q.queue = c.queue
                       left join unnest(kinds) as k(kind) on k.kind = c.kind
                       left join pairs p on p.queue = c.queue and p.kind = c.kind
                       group by 1, 2, 3, 4)
                   select coalesce(jsonb_agg(
                              jsonb_build_array(n.queue, n.kind, n.event, n.reason, n.n)
                              order by n.queue, n.kind, n.event, n.reason), '[]')
                   from named n),
        -- paused queues within 'other' are not due: no worker may take their ready jobs
        'depths', (select coalesce(jsonb_agg(to_jsonb(d)), '[]')
                   from (select coalesce(q.queue, 'other') as queue,
                                sum(case when is_due then d.ready else 0 end) as ready,
                                sum(d.scheduled + case when is_due then 0 else d.ready end)
                                    as scheduled,
                                sum(d.retrying) as retrying, sum(d.running) as running,
                                bool_and(d.paused) as paused,
                                max(case when is_due then d.oldest_ready_seconds else 0 end)
                                    as oldest_ready_seconds
                         from redrive.depths_v1() d
                         left join unnest(queues) as q(queue) on q.queue = d.queue,
                         lateral (select q.queue is not null or not d.paused as is_due) p
                         group by 1) d),
        'added_per_minute', (select coalesce(jsonb_object_agg(a.queue, a.added), '{}')
                             from (select coalesce(q.queue, 'other') as queue, sum(a.added) as added
                                   from redrive.added_per_minute_v1() a
                                   left join unnest(queues) as q(queue) on q.queue = a.queue
                                   group by 1) a),
        'unhandled', (select coalesce(jsonb_agg(jsonb_build_array(u.queue, u.kind, u.jobs)), '[]')
                      from (select coalesce(q.queue, 'other') as queue,
                                   coalesce(k.kind, 'other') as kind, sum(u.jobs) as jobs
                            from redrive.unhandled_v1() u
                            left join unnest(queues) as q(queue) on q.queue = u.queue
                            left join unnest(kinds) as k(kind) on k.kind = u.kind
                            group by 1, 2) u),
        'oldest_dead', (select coalesce(jsonb_object_agg(o.queue, o.age_seconds), '{}')
                        from (select coalesce(q.queue, 'other') as queue,
                                     max(o.age_seconds) as age_seconds
                              from redrive.oldest_dead_v1() o
                              left join unnest(queues) as q(queue) on q.queue = o.queue
                              group by 1) o),
        'oldest_retrying', (select coalesce(jsonb_object_agg(o.queue, o.age_seconds), '{}')
                            from (select coalesce(q.queue, 'other') as queue,
                                         max(o.age_seconds) as age_seconds
                                  from redrive.oldest_retrying_v1() o
                                  left join unnest(queues) as q(queue) on q.queue = o.queue
                                  group by 1) o),
        'objectives', (select coalesce(jsonb_agg(jsonb_build_array(o.queue, o.objective, o.value)),
                                       '[]')
                       from redrive.objectives o),
        'kind_objectives', (select coalesce(jsonb_agg(jsonb_build_array(
                                o.queue, o.kind, o.objective, o.value)), '[]')
                            from redrive.kind_objectives o),
        -- an empty kind stands for the queue as a whole
        'owners', (select coalesce(jsonb_agg(jsonb_build_array(o.queue, o.kind, o.owner)), '[]')
                   from (select q.queue, '' as kind, coalesce(o.owner, a.owner) as owner
                         from unnest(queues || 'other'::text) as q(queue)
                         left join redrive.owners o on o.queue = q.queue and o.kind = '*'
                         left join redrive.owners a on a.queue = '*' and a.kind = '*'
                         union
                         select k.queue, k.kind, redrive.owner_of_v1(k.queue, k.kind)
                         from redrive.kind_objectives k where k.kind <> '*'
                         union
                         select c ->> 0, c ->> 1, redrive.owner_of_v1(c ->> 0, c ->> 1)
                         from jsonb_array_elements(failing -> 'causes') c) o
                   where o.owner is not null),
        'unacknowledged', (select coalesce(jsonb_agg(jsonb_build_array(
                               u.queue, u.dead_letters, u.age_seconds)), '[]')
                           from (select coalesce(q.queue, 'other') as queue,
                                        sum(g.open) as dead_letters,
                                        extract(epoch from clock_timestamp() - min(o.opened_at))
                                            ::float8 as age_seconds
                                 from redrive.open_groups o
                                 join redrive.groups g on g.fingerprint = o.fingerprint
                                 left join unnest(queues) as q(queue) on q.queue = o.queue
                                 where o.acknowledged_at is null and g.open > 0
                                 group by 1) u),
        -- Of each queue, the group that opened last.
        'newest_groups', (select coalesce(jsonb_agg(jsonb_build_array(
                              n.queue, n.kind, n.fingerprint, n.opened_at)), '[]')
                          from (select distinct on (o.queue) o.queue, g.kind,
                                       o.fingerprint,
                                       extract(epoch from o.opened_at)::float8 as opened_at
                                from redrive.open_groups o
                                join redrive.groups g on g.fingerprint = o.fingerprint
                                where o.acknowledged_at is null and g.open > 0
                                      and o.queue = any (queues)
                                order by o.queue, o.opened_at desc, o.fingerprint) n),
        'breakers', (select coalesce(jsonb_object_agg(b.name, b.state), '{}')
                     from redrive.breakers b),
        -- Limits of keys and campaigns are summed over all keys, because their names reveal
        -- payloads.
        'limits', (select coalesce(jsonb_agg(jsonb_build_array(
                       l.name, l.concurrency, l.used, l.waiting) order by l.name), '[]')
                   from (select case when n.nth <= 100 then n.name else 'other' end as name,
                                case when n.nth <= 100 then min(n.concurrency) end as concurrency,
                                sum(n.used) as used, sum(n.waiting) as waiting
                         from (select b.name, b.used, b.waiting,
                                      case when strpos(b.name, ':') = 0 then b.concurrency end
                                          as concurrency,
                                      dense_rank() over (order by b.name) as nth
                               from (select case when strpos(l.name, ':') = 0 then l.name
                                                 else split_part(l.name, ':', 1) || ':*' end
                                                as name,
                                            l.concurrency, l.used, l.waiting
                                     from redrive.limits_v1() l) b) n
                         group by 1, n.nth <= 100) l),
        'chores', (select coalesce(jsonb_agg(jsonb_build_array(
                       c.name, extract(epoch from nullif(c.ran_at, '-infinity'))::float8,
                       extract(epoch from c.every)::float8)), '[]')
                   from redrive.chores c where c.ran_at > '-infinity' or c.every is not null),
        'expected', (select coalesce(jsonb_object_agg(
                         c.name, extract(epoch from c.expected_at)::float8), '{}')
                     from redrive.chores c where c.expected_at is not null),
        'schedule_overdue', (select coalesce(max(extract(
                                 epoch from clock_timestamp() - coalesce(s.next_at, s.since))), 0)
                             from redrive.schedules s
                             join redrive.declared_schedules_v1() d on d.schedule = s.name
                             where s.paused_at is null
                               and coalesce(s.next_at, s.since) < clock_timestamp()),
        'campaigns', (select coalesce(jsonb_agg(jsonb_build_array(
                          c.state, greatest(c.matched - c.place, 0), c.round_ended,
                          c.round_dead)), '[]')
                      from redrive.campaigns c
                      where c.planned_login is not null
                        and c.state in ('waiting', 'canary', 'ramp', 'running', 'paused',
                                        'aborted')
                        and c.active_at > clock_timestamp() - interval '30 days'),
        'workers', (select count(*) from redrive.workers w
                    where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)),
        'workers_lost', redrive.lost_workers_v1(),
        'oldest_transaction', (select coalesce(max(t.seconds), 0)
                               from redrive.oldest_transactions_v1(1) t),
        'health', redrive.health_v1(found_body -> 'health'),
        'tables', (select jsonb_agg(jsonb_build_array(c.relname, pg_stat_get_dead_tuples(c.oid),
                                                      pg_total_relation_size(c.oid)))
                   from pg_class c
                   where c.relnamespace = 'redrive'::regnamespace
                     and c.relname in ('jobs', 'dead_letters', 'failures', 'completions',
                                       'deltas')));
    if is_ours then
        update redrive.snapshots s set taken_at = clock_timestamp(), body = found_body;
    end if;
    return found_body;
end
$$;

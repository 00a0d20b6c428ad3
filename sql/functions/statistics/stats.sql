-- stats: every figure of the database that is exported, as one JSON object, at most `max_age` old.
-- One caller at a time makes it new; the others get the one before at once. A hundred replicas cost
-- what one does. Where that one does not come back, whoever holds a transaction open, the others see
-- for themselves after ten seconds and leave the one before as it is. Nothing here counts a big table: counters are summed from the tallies, ages are
-- index probes. At most 500 kinds are told apart, the first that were seen; the snapshot remembers
-- which, so that all who serve it agree, and none changes its name later. The others are 'other'.
create or replace function redrive.stats_v1(max_age interval) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = on
as $$
declare
    found_body jsonb;
    found_at timestamptz;
    shown_kinds jsonb;
    is_ours boolean;
begin
    select s.body, s.taken_at into found_body, found_at from redrive.snapshots s;
    if found_at > clock_timestamp() - max_age then
        return found_body;
    end if;
    perform from redrive.snapshots s where s.taken_at = found_at for update skip locked;
    is_ours := found;
    if not is_ours and found_at > clock_timestamp() - greatest(max_age, interval '10 seconds') then
        return found_body;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    select coalesce(jsonb_agg(k.kind order by k.place, k.kind), '[]') into shown_kinds
    from (select t.kind, min(o.place) as place
          from (select kind from redrive.tallies union select kind from redrive.deltas) t
          left join jsonb_array_elements_text(coalesce(found_body -> 'kinds', '[]'))
              with ordinality as o(kind, place)
              on o.kind = t.kind
          where t.kind <> ''
          group by t.kind order by place, t.kind limit 500) k;
    found_body := jsonb_build_object(
        'taken_at', extract(epoch from clock_timestamp())::float8,
        'kinds', shown_kinds,
        'totals', (select coalesce(jsonb_agg(
                              jsonb_build_array(t.queue, t.kind, t.event, t.reason, t.n)
                              order by t.queue, t.kind, t.event, t.reason), '[]')
                   from (select t.queue,
                                case when t.kind = '' then '' else coalesce(k.kind, 'other') end
                                    as kind,
                                t.event, t.reason, sum(t.n) as n
                         from redrive.totals t
                         left join jsonb_array_elements_text(shown_kinds) as k(kind)
                             on k.kind = t.kind
                         group by 1, 2, 3, 4) t),
        'depths', (select coalesce(jsonb_agg(to_jsonb(d)), '[]') from redrive.depths_v1() d),
        'added_per_minute', (select coalesce(jsonb_object_agg(a.queue, a.added), '{}')
                             from redrive.added_per_minute_v1() a),
        'unhandled', (select coalesce(jsonb_agg(jsonb_build_array(u.queue, u.kind, u.jobs)), '[]')
                      from (select u.queue, coalesce(k.kind, 'other') as kind, sum(u.jobs) as jobs
                            from redrive.unhandled_v1() u
                            left join jsonb_array_elements_text(shown_kinds) as k(kind)
                                on k.kind = u.kind
                            group by 1, 2) u),
        'oldest_dead', (select coalesce(jsonb_object_agg(o.queue, o.age_seconds), '{}')
                        from redrive.oldest_dead_v1() o),
        'objectives', (select coalesce(jsonb_agg(jsonb_build_array(o.queue, o.objective, o.value)),
                                       '[]')
                       from redrive.objectives o),
        'breakers', (select coalesce(jsonb_object_agg(b.name, b.state), '{}')
                     from redrive.breakers b),
        'chores', (select coalesce(jsonb_agg(jsonb_build_array(
                       c.name, extract(epoch from nullif(c.ran_at, '-infinity'))::float8,
                       extract(epoch from c.every)::float8)), '[]')
                   from redrive.chores c where c.ran_at > '-infinity' or c.every is not null),
        'workers', (select count(*) from redrive.workers w
                    where w.lost_at is null
                      and w.seen_at > clock_timestamp() - interval '2 minutes'),
        'workers_lost', (select count(*) from redrive.workers w
                         where w.lost_at is not null
                           or w.seen_at <= clock_timestamp() - interval '2 minutes'),
        'oldest_transaction', (select coalesce(max(extract(
                                   epoch from clock_timestamp() - a.xact_start)), 0)::float8
                               from pg_stat_activity a
                               where a.datname = current_database() and a.pid <> pg_backend_pid()
                                 and a.backend_xmin is not null),
        'tables', (select jsonb_agg(jsonb_build_array(c.relname, pg_stat_get_dead_tuples(c.oid),
                                                      pg_total_relation_size(c.oid)))
                   from pg_class c
                   where c.relkind = 'r' and c.relnamespace = 'redrive'::regnamespace
                     and c.relname in ('jobs', 'dead_letters', 'failures', 'completions',
                                       'deltas')));
    if is_ours then
        update redrive.snapshots s set taken_at = clock_timestamp(), body = found_body;
    end if;
    return found_body;
end
$$;

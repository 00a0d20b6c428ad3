-- health: return figures about the server, and about work that somebody has left behind.
-- It reads statistics and the catalog. No big table is counted. The sizes are estimates of vacuum
-- and analyze, because an exact size waits for a locked table.
-- in:    before: an earlier result, which is returned again for 15 seconds; null: none
-- out:   sees_sessions: the owner of the schema may see all sessions (pg_read_all_stats). If not,
--        what it cannot see is null or empty, and so the metric is absent
--        connections: scope, used, available. Reserved ones are not available
--        horizons: holder, age in transactions: what keeps vacuum from removing rows
--        oldest_transaction: session, login, application, seconds, if it has been open for long
--        freeze: counter, scope, age. `server` is the oldest of all databases
--        tables: name, dead rows, dead rows at which autovacuum begins, age of the last vacuum
--        standbys: name, bytes, seconds; slots: name, active, bytes of WAL kept
--        disk: dead_letters and history -> bytes
--        sequences: name -> share used; names: of queues and kinds, used and allowed; limits: name -> how long the oldest job has waited
--        campaigns: paused or aborted with dead letters left, or with canaries that have not begun ->
--        seconds since the last step
--        heals_aborted: campaigns of heal that aborted within a day
-- locks: none but those of reading. If somebody has locked a sequence, it returns null after 100 ms
create or replace function redrive.health_v1(before jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set jit = off
as $$
declare
    now_seconds constant float8 := extract(epoch from clock_timestamp());
    most_shown constant int := 20;
    sees_sessions constant boolean := pg_has_role(current_user, 'pg_read_all_stats', 'usage');
    is_primary constant boolean := not pg_is_in_recovery();
begin
    if (before ->> 'taken_at')::float8 between now_seconds - 15 and now_seconds then
        return before;
    end if;
    return jsonb_build_object(
        'taken_at', now_seconds,
        'sees_sessions', sees_sessions,
        'connections', (
            select coalesce(jsonb_agg(jsonb_build_array(l.scope, l.used, l.available)), '[]')
            from (select count(*) as all_of_server,
                         count(*) filter (where a.datname = current_database()) as of_database
                  from pg_stat_activity a where a.backend_type = 'client backend') n,
            lateral (
                select 'server' as scope, n.all_of_server as used,
                       current_setting('max_connections')::int
                       - current_setting('superuser_reserved_connections')::int
                       - coalesce(current_setting('reserved_connections', true)::int, 0)
                           as available
                union all
                select 'database', n.of_database, d.datconnlimit from pg_database d
                where d.datname = current_database() and d.datconnlimit >= 0) l
            where sees_sessions),
        'horizons', (
            select coalesce(jsonb_object_agg(h.holder, h.age) filter (where h.age is not null), '{}')
            from (select 'transaction' as holder,
                         max(greatest(age(a.backend_xmin), age(a.backend_xid))) as age
                  from pg_stat_activity a
                  where a.datname = current_database() and a.pid <> pg_backend_pid()
                    and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
                  union all
                  select 'prepared', max(age(p.transaction)) from pg_prepared_xacts p
                  where p.database = current_database()
                  union all
                  select 'slot', max(age(s.xmin)) from pg_replication_slots s
                  union all
                  select 'standby', max(age(r.backend_xmin)) from pg_stat_replication r) h),
        -- only one that has been open for five minutes
        'oldest_transaction', (
            select jsonb_build_array(
                coalesce(t.pid::text, t.prepared), t.login, t.application, t.seconds)
            from redrive.oldest_transactions_v1(1) t where t.seconds > 300 and sees_sessions),
        'freeze', (
            select jsonb_agg(jsonb_build_array(f.counter, f.scope, f.age))
            from (select max(age(d.datfrozenxid)) as xids, max(mxid_age(d.datminmxid)) as multis,
                         max(age(d.datfrozenxid)) filter (where d.datname = current_database())
                             as our_xids,
                         max(mxid_age(d.datminmxid)) filter (where d.datname = current_database())
                             as our_multis
                  from pg_database d) o,
            lateral (values ('transaction', 'server', o.xids), ('multixact', 'server', o.multis),
                            ('transaction', 'database', o.our_xids),
                            ('multixact', 'database', o.our_multis)) f(counter, scope, age)),
        'freeze_at', jsonb_build_object(
            'transaction', current_setting('autovacuum_freeze_max_age')::int,
            'multixact', current_setting('autovacuum_multixact_freeze_max_age')::int),
        'tables', (
            select jsonb_agg(jsonb_build_array(
                c.relname, pg_stat_get_dead_tuples(c.oid),
                coalesce((o.settings ->> 'autovacuum_vacuum_threshold')::float8,
                         current_setting('autovacuum_vacuum_threshold')::float8)
                + coalesce((o.settings ->> 'autovacuum_vacuum_scale_factor')::float8,
                           current_setting('autovacuum_vacuum_scale_factor')::float8)
                * greatest(c.reltuples, 0),
                extract(epoch from clock_timestamp()
                        - greatest(pg_stat_get_last_vacuum_time(c.oid),
                                   pg_stat_get_last_autovacuum_time(c.oid)))::float8))
            from pg_class c,
            lateral (select jsonb_object_agg(t.option_name, t.option_value) as settings
                     from pg_options_to_table(c.reloptions) t) o
            where c.relnamespace = 'redrive'::regnamespace
              and c.relname in ('jobs', 'dead_letters', 'failures', 'completions', 'deltas')),
        'standbys', (
            select coalesce(jsonb_agg(jsonb_build_array(r.name, r.bytes, r.seconds)), '[]')
            from (select s.application_name as name,
                         max(pg_wal_lsn_diff(
                             pg_current_wal_lsn(),
                             coalesce(s.replay_lsn, s.flush_lsn, s.write_lsn)))::float8 as bytes,
                         coalesce(extract(epoch from max(s.replay_lag)), 0)::float8 as seconds
                  from pg_stat_replication s
                  where is_primary and sees_sessions and s.state in ('streaming', 'catchup')
                  group by s.application_name order by 2 desc nulls last limit most_shown) r
            where r.bytes is not null),
        'slots', (
            select coalesce(jsonb_agg(jsonb_build_array(s.slot_name, s.active, s.bytes)), '[]')
            from (select s.slot_name, s.active,
                         pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::float8 as bytes
                  from pg_replication_slots s
                  where is_primary and not s.temporary and s.restart_lsn is not null
                  order by 3 desc limit most_shown) s),
        'database_size', case
            when sees_sessions or has_database_privilege(current_database(), 'connect')
            then pg_database_size(current_database()) end,
        'schema_size', (
            with ours as (
                select c.oid, c.reltoastrelid, c.relpages from pg_class c
                where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'm', 'i')),
            toast as (
                select t.oid, t.relpages from pg_class t
                where t.oid in (select o.reltoastrelid from ours o)),
            pages as (
                select o.relpages from ours o
                union all select t.relpages from toast t
                union all select c.relpages from pg_class c
                          join pg_index i on i.indexrelid = c.oid
                          where i.indrelid in (select t.oid from toast t))
            select sum(p.relpages::bigint) * current_setting('block_size')::int from pages p),
        'disk', (
            with ours as (
                select c.oid, c.reltoastrelid,
                       case when c.relname in ('dead_letters', 'failures') then 'dead_letters'
                            else 'history' end as what
                from pg_class c
                where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'r'
                  and (c.relname in ('dead_letters', 'failures')
                       or c.oid in (select i.inhrelid from pg_inherits i
                                    where i.inhparent = 'redrive.history'::regclass))),
            tables as (
                select o.what, o.oid from ours o
                union all select o.what, o.reltoastrelid from ours o where o.reltoastrelid <> 0),
            files as (
                select t.what, t.oid from tables t
                union all select t.what, i.indexrelid
                          from tables t join pg_index i on i.indrelid = t.oid)
            select jsonb_object_agg(s.what, s.bytes)
            from (select f.what, sum(greatest(c.relpages, 0)::bigint)
                                 * current_setting('block_size')::int as bytes
                  from files f join pg_class c on c.oid = f.oid
                  group by f.what) s),
        'sequences', (
            select coalesce(jsonb_object_agg(
                       c.relname,
                       coalesce(pg_sequence_last_value(q.seqrelid), 0)::float8 / q.seqmax), '{}')
            from pg_sequence q join pg_class c on c.oid = q.seqrelid
            where c.relnamespace = 'redrive'::regnamespace and not q.seqcycle
              and c.relname <> 'notified'),  -- it holds an instant
        'names', (select jsonb_agg(jsonb_build_array(u.what, u.used, u.at_most))
                  from redrive.names_used_v1() u),
        -- Keys of a limit are shown together, because their names reveal payloads.
        'limits', (
            select coalesce(jsonb_object_agg(l.name, l.seconds), '{}')
            from (select case when strpos(s.setting, ':') = 0 then s.setting
                              else split_part(s.setting, ':', 1) || ':*' end as name,
                         greatest(extract(epoch from clock_timestamp() - min(w.due)), 0)::float8
                             as seconds
                  from (select o.name, min(o.due) as due
                        from (select w.name, w.due from redrive.limit_waits w limit 100000) o
                        group by o.name) w
                  cross join lateral redrive.limit_of_v1(w.name) s
                  group by 1 order by 2 desc limit 100) l),
        'campaigns', (
            select coalesce(jsonb_object_agg(c.state, c.seconds), '{}')
            from (select c.state,
                         max(extract(epoch from clock_timestamp() - c.active_at))::float8 as seconds
                  from redrive.campaigns c
                  where c.planned_login is not null
                    and (c.state in ('paused', 'aborted')
                         or c.state = 'canary' and c.said is not null)
                    and c.matched > c.place and c.active_at > clock_timestamp() - interval '30 days'
                  group by c.state) c),
        'heals_aborted', (
            select count(*) from redrive.campaigns c
            where c.planned_by = 'heal' and c.state = 'aborted'
              and c.ended_at > clock_timestamp() - interval '1 day'));
exception
    when lock_not_available or insufficient_privilege then
        return null;  -- so that the other figures are shown all the same
end
$$;

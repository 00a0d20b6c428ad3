-- oldest_transactions: list the oldest transactions of this database that hold vacuum back.
-- A transaction does so while it has a snapshot, and also while it has written and is idle. A
-- vacuum itself does not. Prepared transactions have no process.
-- in:    how_many: list at most this number, the oldest first
create or replace function redrive.oldest_transactions_v1(how_many int)
returns table (pid int, prepared text, login text, application text, state text, seconds float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select t.pid, t.prepared, t.login, t.application, t.state,
           extract(epoch from clock_timestamp() - t.began)::float8
    from (select a.pid, null::text as prepared, a.usename::text as login,
                 a.application_name as application, a.state, a.xact_start as began
          from pg_stat_activity a
          where a.datname = current_database() and a.pid <> pg_backend_pid()
            and a.xact_start is not null
            and (a.backend_xmin is not null or a.backend_xid is not null)
            and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
          union all
          select null, p.gid, p.owner::text, '', 'prepared', p.prepared
          from pg_prepared_xacts p where p.database = current_database()) t
    order by t.began limit how_many
$$;

-- sessions: count the client connections of the server by login and application, most first.
-- in:    how_many: list at most this number of groups
create or replace function redrive.sessions_v1(how_many int)
returns table (login text, application text, connections bigint, idle bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select a.usename::text, a.application_name, count(*),
           count(*) filter (where a.state = 'idle')
    from pg_stat_activity a where a.backend_type = 'client backend'
    group by a.usename, a.application_name order by 3 desc, 1, 2 limit how_many
$$;

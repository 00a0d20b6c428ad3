-- end_session: end a session of the console, so that it is not accepted again.
-- Each call also deletes records that are older than a day. Sessions end after twelve hours anyway,
-- so the table needs no chore.
-- in:    session: a value that only the session's cookie and forms hold. Each login may end
--        10,000 sessions a day. Beyond that, its sessions end only by time. So a viewer cannot
--        fill the table and keep others from signing out
create or replace function redrive.end_session_v1(session text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.ended_sessions e where e.ended_at < clock_timestamp() - interval '1 day';
    insert into redrive.ended_sessions (session)
    select end_session_v1.session
    where (select count(*) from redrive.ended_sessions s where s.login = session_user) < 10000
    on conflict do nothing
$$;

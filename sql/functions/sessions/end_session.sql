-- end_session: end a session of the console, so that it is not accepted again.
-- Each call also deletes records that are older than a day. Sessions end after twelve hours anyway,
-- so the table needs no chore.
-- in:    session: a value that only the session's cookie and forms hold. Up to its first dot, it
--        stands for the person. A person may end 1,000 sessions a day. Beyond that, their sessions
--        end only by time. All sessions of a console are ended by one login, so the login of an
--        operator has no quota of its own. A login that is no operator may end 10,000, because it
--        can invent persons
create or replace function redrive.end_session_v1(session text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.ended_sessions e where e.ended_at < clock_timestamp() - interval '1 day';
    insert into redrive.ended_sessions (session)
    select end_session_v1.session
    where (select count(*) from redrive.ended_sessions s
           where s.login = session_user
             and split_part(s.session, '.', 1) = split_part(end_session_v1.session, '.', 1)) < 1000
      and (pg_has_role(session_user, 'redrive_operator', 'usage')
           or (select count(*) from redrive.ended_sessions s where s.login = session_user) < 10000)
    on conflict do nothing
$$;

-- end_session: nobody comes in with this session of the console any more. What would have ended by
-- itself since, after twelve hours, is forgotten on the way, so that the table needs no chore.
-- in:    session: what only its cookie and its forms hold. A viewer may end theirs, and cannot fill
--        the table: of so many a day the rest ends with time alone.
create or replace function redrive.end_session_v1(session text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.ended_sessions e where e.ended_at < clock_timestamp() - interval '1 day';
    insert into redrive.ended_sessions (session)
    select end_session_v1.session
    where (select count(*) from redrive.ended_sessions) < 10000
    on conflict do nothing
$$;

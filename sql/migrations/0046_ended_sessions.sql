-- serves: 8
-- Sessions of the console that somebody signed out of: a copy of the cookie, which is signed and knows nothing of it, is good
-- nowhere any more. Kept for longer than any session lasts.
create table redrive.ended_sessions (
    session  text primary key check (length(session) between 1 and 64),
    ended_at timestamptz not null default clock_timestamp()
);

-- serves: 8
-- The kinds of which two people put dead letters back to work: one plans, another starts. Their handlers say so.
create table redrive.approvals (
    kind  text primary key check (kind collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    login text not null default session_user,
    at    timestamptz not null default clock_timestamp()
);

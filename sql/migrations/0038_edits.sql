-- serves: 8
-- Corrections of dead letters' payloads, each with the payload as it was before it.
create table redrive.edits (
    job      bigint not null,
    n        int not null,                                 -- counts the edits of a job
    redrives int not null,                                 -- of the dead letter: it goes when that one is purged
    at       timestamptz not null default clock_timestamp(),
    actor    text not null check (length(actor) between 1 and 255),  -- who they say they are
    login    text not null default session_user,           -- who Postgres knows they are
    why      text not null check (length(why) between 1 and 2000),
    patch    jsonb not null,                               -- JSON Patch; without values where the payload is encrypted
    paths    text[] not null,                              -- what it changed, as the audit log has it
    payload  jsonb not null,                               -- before it
    salt     text,                                         -- the header that an encrypted one is bound to
    primary key (job, n)
);

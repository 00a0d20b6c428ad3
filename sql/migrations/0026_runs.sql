-- serves: 8
-- A run changes many rows in many transactions, under one line of the audit log: its totals until it ends.
create table redrive.runs (
    id        bigint primary key,                          -- of the line that began it
    action    text not null,
    actor     text not null,
    db_user   text not null default session_user,          -- the one login that goes on with it
    why       text not null,
    n         int not null default 0,
    active_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Of old ones it is not known.
alter table redrive.campaigns add column db_user text;
alter table redrive.campaigns alter column db_user set default session_user;

-- Locked as a whole, so that one run of a sort works at a time. Nobody but their owner may lock them, where an advisory
-- lock is anybody's; and unlike a lock on a row that costs no transaction id, which would keep vacuum back for as long.
create table redrive.purge_lock ();
create table redrive.redrive_lock ();
create table redrive.reencrypt_lock ();

alter table redrive.chores add column marked_by text;      -- whose mark it bears

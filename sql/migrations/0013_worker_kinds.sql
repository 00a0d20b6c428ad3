-- serves: 8
-- Each worker says which kinds it has handlers for (mail.*: all that begin so) and which queues it serves, null: all.
-- kinds null: a worker of the release before, which claims whatever comes.
alter table redrive.workers add column kinds text[], add column queues text[];
insert into redrive.chores (name) values ('unhandled');

-- serves: 8
-- Which queues there are, with the kinds of their jobs and the priorities of these: each is a lane to look at, a counter,
-- a series of metrics, so that how many there may be is data, too. Nothing is unique here: nobody waits for whoever
-- brings the same name in a transaction that stays open.
create table redrive.names (
    queue    text not null,
    kind     text not null,
    priority smallint not null,
    login    text not null default session_user,          -- who brought it
    xact     xid8 not null default pg_current_xact_id(),
    at       timestamptz not null default clock_timestamp()
);
create index names_idx on redrive.names (queue, kind, priority);
insert into redrive.names (queue, kind, priority, login)
select distinct t.queue, t.kind, 0, '' from redrive.tallies t where t.kind <> '';

create table redrive.name_limits (
    what    text primary key check (what in ('queues', 'kinds')),
    at_most int not null check (at_most between 1 and 1000000)
);
-- who has more than that already gets as many again
insert into redrive.name_limits (what, at_most)
select d.what, least(1000000, greatest(d.at_most, 2 * d.used))
from (select 'queues', 1000, count(distinct n.queue) from redrive.names n
      union all select 'kinds', 5000, count(*) from redrive.names n) d(what, at_most, used);

-- Counts and times by minute and by hour, and what happened between them.
-- serves: 1

-- How far fold_series has come with each counter.
alter table redrive.tallies add column counted bigint not null default 0;
update redrive.tallies set counted = n;

-- What happened in a minute or an hour. A pair of queue and kind has a row only if
-- something happened. Minutes are kept for 26 hours, hours for 35 days.
create table redrive.series (
    -- Minutes of a row: 1 or 60.
    span      smallint not null check (span in (1, 60)),
    at        timestamptz not null,
    queue     text not null,
    kind      text not null,
    enqueued  int not null default 0,
    completed int not null default 0,
    failed    int not null default 0,
    retried   int not null default 0,
    died      int not null default 0,
    redriven  int not null default 0,
    -- Attempts by duration and by wait, one number for each bucket; null: none.
    duration  int[],
    wait      int[],
    primary key (span, at, queue, kind)
);

-- What each queue held at the end of a minute; in an hour at most, and the fewest workers.
-- The queue '' stands for all queues, and has a row for each minute that was recorded.
create table redrive.queue_series (
    span    smallint not null check (span in (1, 60)),
    at      timestamptz not null,
    queue   text not null,
    -- Minutes that the counts of this row cover: more than its span after a pause.
    minutes int not null,
    backlog bigint not null,
    running bigint not null,
    workers int not null,
    primary key (span, at, queue)
);

-- Durations and waits that workers have sent and that are not folded yet.
create table redrive.series_deltas (
    queue    text not null,
    kind     text not null,
    duration int[] not null,
    wait     int[] not null
);
alter table redrive.series_deltas replica identity full;

-- Changes that nobody writes to the audit log: deploys, lost workers, and breakers.
create table redrive.marks (
    id     bigint generated always as identity primary key,
    at     timestamptz not null default clock_timestamp(),
    what   text not null,
    -- The version, the worker or the breaker.
    name   text not null,
    -- Null: all.
    queues text[],
    kinds  text[]
);
create index marks_at_idx on redrive.marks (at);

insert into redrive.chores (name) values ('series');

-- Scans that begin behind the dead rows of limits, however many an open snapshot keeps.
-- serves: 1

-- Claims insert slots while they hold the key, so the ids of a name ascend.
alter table redrive.limit_slots
    add column id bigint generated always as identity,
    drop constraint limit_slots_pkey,
    add primary key (job, name);
drop index redrive.limit_slots_job_idx;
create index limit_slots_name_idx on redrive.limit_slots (name, id);

alter table redrive.limit_keys
    -- No slot of the name has a lower id. The rate is in limit_paces.
    add column slots_from bigint not null default 0,
    -- The newest slot of any name when that was found. An older one is moved to the end.
    add column slots_seen bigint not null default 0;

-- What a rate has let begin. Each change is a row of the next number, and the last one counts. So
-- a look from the end meets no dead row. A claim that holds the key of the name writes it.
create table redrive.limit_paces (
    name      text not null,
    n         bigint not null,
    -- The rate of the jobs that have begun is used up until then.
    next_at   timestamptz not null,
    -- The same, with the jobs that were woken and have not begun.
    placed_at timestamptz not null,
    primary key (name, n)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
insert into redrive.limit_paces (name, n, next_at, placed_at)
select k.name, 1, k.next_at, k.placed_at from redrive.limit_keys k
where greatest(k.next_at, k.placed_at) > clock_timestamp();

-- The lines in which jobs wait for a limit, each with the place of its first job. There is no unique
-- index, so no producer waits for another one that begins the same line.
create table redrive.limit_lines (
    name     text not null,
    queue    text not null,
    kind     text not null,
    priority smallint not null,
    due      timestamptz not null default '-infinity',
    job      bigint not null default 0,
    begun_at timestamptz not null default clock_timestamp()
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);
create index limit_lines_name_idx on redrive.limit_lines (name);
alter table redrive.limit_lines replica identity full;
insert into redrive.limit_lines (name, queue, kind, priority)
select distinct w.name, w.queue, w.kind, w.priority from redrive.limit_waits w;

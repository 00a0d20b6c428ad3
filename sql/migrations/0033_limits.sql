-- serves: 8
-- How many jobs of a name may run at once in the whole fleet, and how many may begin in a time.

-- What is set: for a name, or for each that begins like `customer:*` and has none of its own.
create table redrive.limits (
    name        text primary key check (length(name) between 1 and 255),
    concurrency int check (concurrency between 0 and 1000000),
    rate        float8 check (rate > 0),                          -- jobs in a second
    set_at      timestamptz not null default clock_timestamp(),
    check (concurrency is not null or rate is not null)
);
-- What workers say of their handlers: `emails`, `customer:{customer_id}`. A kind may be mail.*
create table redrive.kind_limits (
    kind      text primary key,
    templates text[] not null
);
-- The names of a job, as of when it was enqueued.
alter table redrive.jobs add column limits text[];

-- Each limited name: what a claim locks to take slots of it.
create table redrive.limit_keys (
    name      text primary key,
    next_at   timestamptz not null default '2000-01-01 UTC',     -- of a rate: when all that began are due
    placed_at timestamptz not null default '2000-01-01 UTC'      -- and the time of the last that was woken
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- Each job that runs under a limit: a slot is a row, which goes with the claim.
create table redrive.limit_slots (
    name text not null,
    job  bigint not null,
    primary key (name, job)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
create index limit_slots_job_idx on redrive.limit_slots (job);
-- Each job that waits behind a limit; its run_at is infinity meanwhile.
create table redrive.limit_waits (
    job      bigint primary key,
    name     text not null,
    queue    text not null,
    kind     text not null,
    priority smallint not null,
    due      timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index limit_waits_line_idx on redrive.limit_waits (name, queue, kind, priority, due, job);
insert into redrive.chores (name) values ('limits') on conflict do nothing;

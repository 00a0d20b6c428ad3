-- serves: 8
-- Batches: jobs that belong together, and what is to run once all of them have ended.
alter table redrive.jobs add column batch bigint;
alter table redrive.dead_letters add column batch bigint;

create table redrive.batches (
    id         bigint generated always as identity primary key,
    created_at timestamptz not null default clock_timestamp(),
    close_by   timestamptz not null,                       -- else it is given up
    closed_at  timestamptz,
    ended_at   timestamptz,                                -- for the first time none of its jobs lived
    over_at    timestamptz,                                -- none of them is dead either: it takes no more
    outcome    text check (outcome in ('succeeded', 'ended', 'abandoned')),
    on_success bigint,                                     -- jobs, parked until then
    on_end     bigint
) with (fillfactor = 70);
create index batches_open_idx on redrive.batches (close_by) where closed_at is null and over_at is null;
create index batches_over_idx on redrive.batches (over_at) where over_at is not null;

-- Counters, as deltas is for queues: whoever moves a job of a batch appends, and waits for nobody. One row of each batch is
-- the sum of what came before.
create table redrive.batch_deltas (
    batch     bigint not null,
    total     bigint not null default 0,
    succeeded bigint not null default 0,
    dead      bigint not null default 0,
    cancelled bigint not null default 0,
    is_folded boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);
create index batch_deltas_batch_idx on redrive.batch_deltas (batch);
create index batch_deltas_new_idx on redrive.batch_deltas (batch) where not is_folded;
insert into redrive.chores (name) values ('batches') on conflict do nothing;

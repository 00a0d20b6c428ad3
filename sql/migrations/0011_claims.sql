-- serves: 8
-- A claim is one row: which jobs one worker took from one lane, in one go. The jobs stay as they are until they end.

create table redrive.claims (
    id       bigint generated always as identity primary key,  -- ascending within a lane: its claims follow each other
    worker   int not null,
    queue    text not null,
    priority smallint not null,
    lane     smallint not null,
    -- up to where its kinds of job in this lane have been claimed, by this claim or by those before it
    upto     timestamptz not null,
    upto_id  bigint not null,
    kinds    text[],                                           -- of the worker; null = all
    ids      bigint[] not null                                 -- less those that were given back or dead-lettered
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create index claims_lane_idx on redrive.claims (queue, priority, lane, id);
create index claims_worker_idx on redrive.claims (worker, id);

-- Whoever claims from a lane holds its row meanwhile: one at a time.
create table redrive.lanes (
    queue    text not null,
    priority smallint not null,
    lane     smallint not null,
    primary key (queue, priority, lane)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The one job of each ordering key that is claimed: two claims of a key meet here, whatever lanes they are from.
create table redrive.running_keys (
    queue        text not null,
    ordering_key text not null,
    job          bigint not null,
    primary key (queue, ordering_key)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create index running_keys_job_idx on redrive.running_keys (job);

-- A claim writes no job any more, so its page needs no room for a second version.
alter table redrive.jobs set (fillfactor = 90);

-- Who was registered by the release before may hold jobs by its mark, jobs.worker, which today's functions do not write.
alter table redrive.workers add column marks_jobs boolean not null default true;
-- The ordering key that the last step over them ended with: queue, key.
alter table redrive.chores add column last_key text[];

-- It goes on with what it has and claims nothing more.
alter table redrive.workers add column is_closed boolean not null default false;

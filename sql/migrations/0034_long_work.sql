-- serves: 8
-- What a handler says of its work before it ends, and what it hands back when it has.

-- The newest of a job: the next attempt goes on from it. `jobs.noted` says that there may be one.
create table redrive.checkpoints (
    job        bigint primary key,
    deliveries int not null,                               -- the delivery that said it
    at         timestamptz not null default clock_timestamp(),
    data       jsonb not null                              -- of the handler, or an envelope
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table redrive.progress (
    job        bigint primary key,
    deliveries int not null,
    at         timestamptz not null default clock_timestamp(),
    share      real not null check (share between 0 and 1),
    detail     jsonb not null                              -- {"text": ...}, or an envelope
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- How jobs ended of which nothing else would tell: what a handler returned, and that it cancelled.
create table redrive.results (
    job        bigint primary key,
    deliveries int not null,
    outcome    text not null check (outcome in ('succeeded', 'cancelled')),
    result     jsonb,                                      -- {"value": ...}, or an envelope
    keep_until timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index results_keep_until_idx on redrive.results (keep_until);

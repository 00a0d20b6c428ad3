-- serves: 8
-- What jobs that succeed look like: of each kind a sample of fixed size, to tell what sets dead letters apart from them.
create table redrive.reservoirs (
    kind     text primary key,
    n        int not null default 0,                       -- samples, until it is full
    began_at timestamptz not null default clock_timestamp(),
    taken_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table redrive.reservoir_samples (
    kind  text not null,
    slot  smallint not null,
    at    timestamptz not null default clock_timestamp(),
    facts jsonb not null,                                  -- rules/facts.py: no content of payloads but numbers
    primary key (kind, slot)
);
create index reservoir_samples_at_idx on redrive.reservoir_samples (at);

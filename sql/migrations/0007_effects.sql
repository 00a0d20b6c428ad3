-- What handlers have done exactly once inside this database: one row per key, written in their own transactions.
create table redrive.effects (
    key text primary key check (length(key) between 1 and 255),
    at  timestamptz not null default clock_timestamp()
);
create index effects_at_idx on redrive.effects (at);

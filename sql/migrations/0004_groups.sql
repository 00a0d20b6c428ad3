-- Groups: a thousand dead letters read as three causes. Kept as deltas and folded, like the counters: many workers
-- bury jobs of the same fingerprint at once, and a row of counts would make them wait for each other.

create table redrive.groups (
    fingerprint text primary key,
    kind        text not null,
    category    text not null,
    error_class text not null,
    message     text not null,                 -- of the first one seen
    sample      bigint not null,               -- a job of it
    total       bigint not null,               -- dead letters ever
    open        bigint not null,
    first_seen  timestamptz not null,
    last_seen   timestamptz not null,
    versions    jsonb not null default '{}',   -- image version -> when first seen
    muted_until timestamptz,
    muted_by    text,
    muted_why   text
) with (fillfactor = 50);
create index groups_last_seen_idx on redrive.groups (last_seen);

create table redrive.group_deltas (
    fingerprint text not null,
    kind        text not null,
    category    text not null,
    error_class text not null,
    message     text not null,
    sample      bigint not null,
    version     text not null default '',
    added       bigint not null,               -- dead letters added
    opened      bigint not null,               -- added, less those that left the state open
    at          timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

alter table redrive.dead_letters
    add column environment text,
    add column version text;                   -- of the image that failed it

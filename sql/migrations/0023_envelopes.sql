-- serves: 8
-- Which encrypted payloads came in lately: whoever has one, but not its key, cannot enqueue it again.
create table redrive.envelopes (
    digest bytea primary key,
    at     timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
create index envelopes_at_idx on redrive.envelopes (at);

-- Breakers: what the fleet knows of its dependencies. One row each, locked for the length of one short statement.
create table redrive.breakers (
    name       text primary key check (name collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    state      text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    failures   int not null default 0,                      -- in the current window
    successes  int not null default 0,
    window_at  timestamptz not null default clock_timestamp(),
    opened     int not null default 0,                      -- times in a row without closing: the cooldown doubles
    opened_at  timestamptz,
    open_until timestamptz,
    probe_by   int,                                         -- the worker whose job tries it
    probe_until timestamptz,
    forced_by  text,                                        -- an operator holds it as it is
    forced_why text,
    changed_at timestamptz not null default clock_timestamp()
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- Two more tables in which an open snapshot keeps many dead rows.
-- serves: 1

-- A transaction finds its replacements at its commit.
create index replacements_xact_idx on redrive.replacements (xact);

-- When each lane may be read from its beginning again. Claims change it many times in a second. Each change gives the row the next number, so a look from
-- the end meets no dead row. The row of the lane, which each claim locks, stays as it is.
create table redrive.full_scans (
    queue    text not null,
    priority smallint not null,
    lane     smallint not null,
    n        bigint not null,
    next_at  timestamptz not null,
    -- The kinds of the worker that did it last. Workers with other kinds do it themselves.
    kinds    text[],
    primary key (queue, priority, lane, n)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);

-- Ordering keys under which many jobs have ended while a snapshot was open.
-- serves: 1

-- Where the live rows of such a key begin. A claim of its jobs locks the row. Keys under which few
-- jobs have ended lately have no row.
create table redrive.hot_keys (
    queue        text not null,
    ordering_key text not null,
    -- That of the live row in running_keys. A move makes a new one, which has few dead rows.
    generation   int not null,
    -- No live job of the key has a lower id.
    jobs_from    bigint not null,
    -- The next such place. It holds when all transactions below next_xid have ended, because one of
    -- them may insert an older job.
    next_from    bigint not null,
    next_xid     xid8 not null,
    moved_at     timestamptz not null default clock_timestamp(),
    primary key (queue, ordering_key)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);

-- The row of generation 0 stays if the key has a row in hot_keys: then its job is 0.
alter table redrive.running_keys
    add column generation int not null default 0,
    drop constraint running_keys_pkey,
    add primary key (queue, ordering_key, generation);

-- Full scans that the workers of a lane share: one of them reads the lane from its beginning for all.
-- serves: 1

alter table redrive.lanes
    -- When the next claim may read the lane from its beginning again.
    add column full_scan_at    timestamptz not null default '-infinity',
    -- The kinds of the worker that did it last. Workers with other kinds do it themselves.
    add column full_scan_kinds text[];

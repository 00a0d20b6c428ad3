-- serves: 8
-- Since when a scheduled task is expected: one that has never run is late, too, and not before it can be.
alter table redrive.chores add column expected_at timestamptz;

-- serves: 8
-- When the next slot of a schedule was worked out. A clock that has been set back since then has to work it out again.
alter table redrive.schedules add column planned_at timestamptz;

-- series_hour: return the hour that is not over yet when this minute is the last that was recorded.
-- in:    minute: in minutes since 1970
create or replace function redrive.series_hour_v1(minute bigint) returns timestamptz
language sql immutable
return to_timestamp((minute + 1) / 60 * 3600);

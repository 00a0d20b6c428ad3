-- lane_mark: return the key of the advisory lock that shows whether a session holds jobs of a lane.
-- Sessions that hold jobs take it shared. A claim tries to take it alone.
create or replace function redrive.lane_mark_v1(queue text, priority smallint, lane smallint)
returns bigint
language sql immutable parallel safe
return hashtextextended(queue, priority * 65536 + lane);

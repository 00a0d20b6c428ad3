-- lane_mark: return which row of lane_marks shows whether a session holds jobs of a lane.
-- Sessions that hold jobs lock it for key share. A claim tries to lock it alone. Two lanes may have
-- the same row: then a claim locks its jobs although nobody holds one of them.
create or replace function redrive.lane_mark_v2(queue text, priority smallint, lane smallint)
returns smallint
language sql immutable parallel safe
return (hashtextextended(queue, priority * 65536 + lane) & 1023)::smallint;

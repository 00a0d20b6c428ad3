-- lane_mark: the advisory lock that says of a lane whether somebody holds jobs of it: shared by those
-- who do, and by a claim, which tries, alone.
create or replace function redrive.lane_mark_v1(queue text, priority smallint, lane smallint)
returns bigint
language sql immutable parallel safe
return hashtextextended(queue, priority * 65536 + lane);

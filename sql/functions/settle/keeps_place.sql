-- keeps_place: return true if a job that comes back keeps its run_at, and so its place in the lane.
-- It comes back at once, and it did not end by itself.
-- in:    as settle, for one job
create or replace function redrive.keeps_place_v1(
    outcome text, reason text, losses int, run_at timestamptz, delay float8)
returns boolean
language sql immutable parallel safe
return run_at is null and delay = 0 and (
    outcome = 'rescue' or losses > 0
    or outcome = 'release' and reason in ('shutdown', 'neighbour_killed', 'trial'));

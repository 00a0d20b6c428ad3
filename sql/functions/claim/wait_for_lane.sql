-- wait_for_lane: have a lane next, after whoever claims from it: asleep, in the order of those who wait.
-- in:    patience: in milliseconds
-- out:   whether it is ours now
-- locks: the row of the lane
create or replace function redrive.wait_for_lane_v1(
    of_queue text, of_priority smallint, of_lane smallint, patience int)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = 0  -- what is set here ends here
set jit = off
as $$
begin
    perform set_config('lock_timeout', patience::text, true);
    perform from redrive.lanes l
    where l.queue = of_queue and l.priority = of_priority and l.lane = of_lane
    for update;
    return true;
exception
    when lock_not_available then
        return false;
end
$$;

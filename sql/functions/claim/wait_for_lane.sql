-- wait_for_lane: wait for a lane that another worker claims from.
-- The claim sleeps, and waiting claims get the lane in their order.
-- in:    patience: in milliseconds
-- out:   true if the lane is locked by us now
-- locks: the row of the lane
create or replace function redrive.wait_for_lane_v1(
    of_queue text, of_priority smallint, of_lane smallint, patience int)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = 0  -- a change of this setting below ends with the function
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

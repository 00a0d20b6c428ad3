-- make_lane: the row of a lane from which nobody has claimed yet.
-- out:   whether it was made here, and is ours
-- locks: the row of the lane; for whoever makes it just now this waits for a moment only, for a claim
--        may hold other lanes by now, and that one may want them
create or replace function redrive.make_lane_v1(
    of_queue text, of_priority smallint, of_lane smallint)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
set jit = off
as $$
begin
    insert into redrive.lanes values (of_queue, of_priority, of_lane) on conflict do nothing;
    return found;
exception
    when lock_not_available then
        return false;
end
$$;

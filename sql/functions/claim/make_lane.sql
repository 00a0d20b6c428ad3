-- make_lane: insert the row of a lane from which no worker has claimed yet.
-- out:   true if the row was inserted here, and is locked by us
-- locks: the row of the lane. If another claim is inserting it, this waits only a moment: this
--        claim may hold other lanes that the other claim wants
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

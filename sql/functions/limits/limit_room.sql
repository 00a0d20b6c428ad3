-- limit_room: return how many more jobs of a name may begin now; null: it is not limited.
-- out:   as limit_rooms
create or replace function redrive.limit_room_v1(
    name text, out slots int, out room int, out rate float8, out burst int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select r.slots, r.room, r.rate, r.burst
    from redrive.limit_rooms_v1(array[limit_room_v1.name]) r
$$;

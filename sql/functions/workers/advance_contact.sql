-- advance_contact: store the time that the clock of contact shows.
-- Calls that beat, retire, or look for lost workers do it. One session at a time writes, and the
-- others skip it.
-- locks: the one row, skip locked
create or replace function redrive.advance_contact_v1() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    update redrive.contact c set elapsed = redrive.contact_now_v1(), at = clock_timestamp()
    where c.one in (
        select o.one from redrive.contact o
        -- not at each heartbeat of a thousand workers; at once if the server's clock was set back
        where clock_timestamp() not between o.at and o.at + interval '0.2 s'
        for update skip locked);
end
$$;

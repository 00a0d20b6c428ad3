-- take_chore: return true if the caller should do a chore that is due now.
-- The worker that moves the chore's clock does it; no leader is elected.
create or replace function redrive.take_chore_v1(chore text, every interval) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with taken as (
        update redrive.chores c set ran_at = clock_timestamp()
        where c.name = (select o.name from redrive.chores o
                        where o.name = chore
                          -- in the future: the server's clock was set back since
                          and (o.ran_at < clock_timestamp() - take_chore_v1.every
                               or o.ran_at > clock_timestamp())
                        for update skip locked)
        returning 1)
    select exists (select from taken)
$$;

-- contact_now: return for how long workers have been able to reach the database.
-- This clock stands still while none of them can. Between two updates it advances by at most a
-- quarter of the shortest ttl. So after any outage, and after any change of the server's clock, a
-- worker that beats in time has most of its ttl left.
create or replace function redrive.contact_now_v1() returns interval
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select c.elapsed + greatest('0', least(
        clock_timestamp() - c.at,
        (select coalesce(min(w.ttl), '30 s') / 4 from redrive.workers w where w.lost_at is null)))
    from redrive.contact c
$$;

-- contact_now: for how long workers have been able to reach the database, by a clock that stands
-- still while nobody can.
--
-- Between two looks it runs for a quarter of the shortest ttl at most. However long an outage was,
-- and however far the server's clock was set, a worker that beats in time has most of its ttl left.
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

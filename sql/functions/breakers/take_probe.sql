-- take_probe: lease the probe of a half-open breaker to one job of all workers.
-- The lease expires by itself.
-- locks: the breaker, skip locked: no job waits for an operator who is forcing it
create or replace function redrive.take_probe_v1(name text, worker int, lease interval)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with taken as (
        update redrive.breakers b set probe_by = worker, probe_until = clock_timestamp() + lease
        where b.name = (
            select o.name from redrive.breakers o
            where o.name = take_probe_v1.name and o.state = 'half_open' and o.forced_by is null
              and (o.probe_until is null or o.probe_until < clock_timestamp()
                   -- the server's clock was set back since
                   or o.probe_until > clock_timestamp() + 2 * lease)
            for update skip locked)
        returning 1)
    select exists (select from taken)
$$;

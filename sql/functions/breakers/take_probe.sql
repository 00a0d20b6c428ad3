-- take_probe: one job of all workers tries a half-open dependency; the lease runs out by itself.
create or replace function redrive.take_probe_v1(name text, worker int, lease interval)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with taken as (
        update redrive.breakers b set probe_by = worker, probe_until = clock_timestamp() + lease
        where b.name = take_probe_v1.name and b.state = 'half_open' and b.forced_by is null
          and (b.probe_until is null or b.probe_until < clock_timestamp()
               -- the server's clock was set back since
               or b.probe_until > clock_timestamp() + 2 * lease)
        returning 1)
    select exists (select from taken)
$$;

-- contact_now: return for how long workers have been able to reach the database.
-- This clock stands still while none of them can. Between two updates it advances by at most a
-- quarter of the shortest ttl. So after any outage, and after any change of the server's clock, a
-- worker that beats in time has most of its ttl left. No ttl is below a second (heartbeat_ttl), so a
-- time below a quarter of a second needs no look at the ttls. Such a look reads all workers.
create or replace function redrive.contact_now_v1() returns interval
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    seen redrive.contact;
    since interval;
begin
    select * into seen from redrive.contact;
    since := clock_timestamp() - seen.at;
    if since not between '0' and '0.25 s' then
        since := greatest('0', least(since, (
            select coalesce(min(w.ttl), '30 s') / 4 from redrive.workers w
            where w.lost_at is null)));
    end if;
    return seen.elapsed + since;
end
$$;

-- limited: count the jobs of each queue that wait for limits; it reads at most 100,000 jobs.
create or replace function redrive.limited_v1() returns table (queue text, waiting bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select o.queue, count(*) from (select w.queue from redrive.limit_waits w limit 100000) o
    group by o.queue
$$;

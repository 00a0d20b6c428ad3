-- oldest_dead: return the age of each queue's oldest open dead letter.
create or replace function redrive.oldest_dead_v1() returns table (queue text, age_seconds float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select q.queue, extract(epoch from clock_timestamp() - d.died_at)::float8
    from (select t.queue from redrive.tallies t where t.event in ('dead', 'imported')
          union select t.queue from redrive.deltas t where t.event in ('dead', 'imported')) q,
    lateral (select o.died_at from redrive.dead_letters o
             where o.state = 'open' and o.queue = q.queue order by o.died_at limit 1) d
$$;

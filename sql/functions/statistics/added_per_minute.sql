-- added_per_minute: count the dead letters added in the last full minute, for each queue.
-- It is 0 for a queue until two minutes are on record.
create or replace function redrive.added_per_minute_v1() returns table (queue text, added float8)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with minutes as (
        select distinct s.minute from redrive.samples s order by s.minute desc limit 2),
    span as (
        select max(minute) as until, min(minute) as since from minutes
        having max(minute) > min(minute)
            and max(minute) > clock_timestamp() - interval '2 minutes'),
    grown as (
        select n.queue,
               (n.dead - coalesce(o.dead, 0))
                   / greatest(extract(epoch from p.until - p.since) / 60, 1)::float8 as added
        from span p
        join redrive.samples n on n.minute = p.until
        left join redrive.samples o on o.minute = p.since and o.queue = n.queue)
    select q.queue, coalesce(g.added, 0)
    from (select t.queue from redrive.tallies t union select t.queue from redrive.deltas t) q
    left join grown g on g.queue = q.queue
$$;

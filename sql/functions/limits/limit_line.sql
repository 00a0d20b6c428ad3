-- limit_line: show which limit a job waits for, how much of it is used, and the job's place in
-- line.
-- out:   one row for each of these jobs that waits; place: from 1, at most 1,001
-- plan:  limit_waits_line_idx, at most 1,000 entries of each queue and kind that waits
create or replace function redrive.limit_line_v1(ids bigint[])
returns table (job bigint, name text, concurrency int, used int, rate float8, place int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select w.job, w.name, l.concurrency,
           (select count(*) from redrive.limit_slots s where s.name = w.name)::int, l.rate,
           least(1001, 1 + (
               with recursive line(queue, kind) as (
                   (select o.queue, o.kind from redrive.limit_waits o where o.name = w.name
                    order by o.queue, o.kind limit 1)
                   union all
                   select g.queue, g.kind
                   from line p, lateral (
                       select o.queue, o.kind from redrive.limit_waits o
                       where o.name = w.name and (o.queue, o.kind) > (p.queue, p.kind)
                       order by o.queue, o.kind limit 1) g)
               select sum(c.n) from line p, lateral (
                   select count(*) as n from (
                       select from redrive.limit_waits o
                       where o.name = w.name and o.queue = p.queue and o.kind = p.kind
                         and (o.priority, o.due, o.job) < (w.priority, w.due, w.job)
                       limit 1000) before) c))::int
    from redrive.limit_waits w
    left join lateral redrive.limit_of_v1(w.name) l on true
    where w.job = any (ids);
end
$$;

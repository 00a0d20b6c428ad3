-- limits: list the limits, how much of each is used, and how many jobs wait.
-- A key counts for the limit that applies to it. At most 100,000 waiting jobs are read.
create or replace function redrive.limits_v1()
returns table (name text, concurrency int, rate float8, set_at timestamptz, used bigint,
               waiting bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with used as (
        select l.setting, sum(s.n)::bigint as n
        from (select s.name, count(*) as n from redrive.limit_slots s group by s.name) s
        cross join lateral redrive.limit_of_v1(s.name) l group by l.setting),
    waiting as (
        select l.setting, sum(w.n)::bigint as n
        from (select o.name, count(*) as n
              from (select w.name from redrive.limit_waits w limit 100000) o group by o.name) w
        cross join lateral redrive.limit_of_v1(w.name) l group by l.setting)
    select l.name, l.concurrency, l.rate, l.set_at, coalesce(u.n, 0), coalesce(w.n, 0)
    from redrive.limits l
    left join used u on u.setting = l.name
    left join waiting w on w.setting = l.name
    order by l.name
$$;

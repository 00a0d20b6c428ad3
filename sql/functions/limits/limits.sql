-- limits: list the limits, how much of each is used, and how many jobs wait.
-- A key of a limit may be a value of a payload. Callers that may not read such values get the keys of
-- a limit together, as customer:*.
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
    select n.name, min(l.concurrency) filter (where l.name = n.name),
           min(l.rate) filter (where l.name = n.name), min(l.set_at) filter (where l.name = n.name),
           coalesce(sum(u.n), 0)::bigint, coalesce(sum(w.n), 0)::bigint
    from redrive.limits l
    cross join lateral (
        select case when redrive.reads_texts_v1() or strpos(l.name, ':') = 0 then l.name
                    else split_part(l.name, ':', 1) || ':*' end as name) n
    left join used u on u.setting = l.name
    left join waiting w on w.setting = l.name
    group by n.name
    order by n.name
$$;

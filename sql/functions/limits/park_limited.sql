-- park_limited: park the jobs among these, just inserted, that have no room under their limits.
-- A claim need not look at parked jobs. So jobs that wait for a limit never delay other jobs,
-- however many there are.
-- locks: no key. A job that ends at the same time does not see these; tend_limits wakes them
create or replace function redrive.park_limited_v1(ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
    late bigint[];
    behind text[];
begin
    perform redrive.resolve_limits_v1(ids);
    with counted as materialized (
        select j.id, n.name, row_number() over (partition by n.name order by j.priority, j.id) as nth
        from redrive.jobs j cross join lateral unnest(j.limits) as n(name)
        where j.id = any (ids) and j.run_at <= clock_timestamp()),
    named as materialized (
        select array(select distinct c.name from counted c) as names),
    room as materialized (
        select r.name, case when r.name in (select w.name from redrive.waited_for_v1(n.names) w(name))
                            then 0 else r.room end as room
        from named n cross join lateral redrive.limit_rooms_v1(n.names) r
        where r.room is not null),
    parked as (
        select c.id, min(c.name) as name from counted c join room r on r.name = c.name
        where c.nth > r.room group by c.id)
    select array_agg(p.id order by p.id), array_agg(p.name order by p.id) into late, behind
    from parked p;
    if late is not null then
        perform redrive.park_v1(late, behind);
    end if;
end
$$;

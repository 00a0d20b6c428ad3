-- fold: add the deltas to the tallies.
create or replace function redrive.fold_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with moved as (delete from redrive.deltas returning queue, kind, event, reason, n),
    added as (
        insert into redrive.tallies as t (queue, kind, event, reason, n)
        select queue, kind, event, reason, sum(n) from moved group by queue, kind, event, reason
        order by queue, kind, event, reason
        on conflict (queue, kind, event, reason) do update set n = t.n + excluded.n
        returning 1)
    select count(*)::int from moved
$$;

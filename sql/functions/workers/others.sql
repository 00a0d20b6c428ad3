-- others: count the other workers that look for the same jobs; null: none of these ids is known.
create or replace function redrive.others_v1(ids int[]) returns int
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select max((select count(*)::int from redrive.workers o
                where o.id <> all (ids) and o.lost_at is null
                  and coalesce(o.queues && w.queues, true)))
    from redrive.workers w
    where w.id = any (ids)
$$;

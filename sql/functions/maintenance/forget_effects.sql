-- forget_effects: delete keys of effects past their retention, in batches.
create or replace function redrive.forget_effects_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with gone as (
        delete from redrive.effects e using (
            select o.key from redrive.effects o where o.at < clock_timestamp() - older_than
            order by o.at limit batch for update skip locked) p
        where e.key = p.key
        returning 1)
    select count(*)::int from gone
$$;

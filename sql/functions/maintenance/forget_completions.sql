-- forget_completions: delete idempotency keys past their retention, in batches.
create or replace function redrive.forget_completions_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with gone as (
        delete from redrive.completions c using (
            select o.kind, o.key from redrive.completions o
            where o.at < clock_timestamp() - older_than
            order by o.at limit batch for update skip locked) p
        where c.kind = p.kind and c.key = p.key
        returning 1)
    select count(*)::int from gone
$$;

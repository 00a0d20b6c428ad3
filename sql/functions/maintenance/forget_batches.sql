-- forget_batches: delete batches that have been over for longer than their retention, in steps.
-- plan:  batches_over_idx, batch_deltas_sums_idx
create or replace function redrive.forget_batches_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
    with gone as (
        delete from redrive.batches b using (
            select o.id from redrive.batches o
            where o.over_at < clock_timestamp() - older_than
            order by o.over_at limit batch for update skip locked) p
        where b.id = p.id
        returning b.id),
    uncounted as (
        delete from redrive.batch_deltas d where d.batch = any (array(select g.id from gone g)))
    select count(*)::int from gone
$$;

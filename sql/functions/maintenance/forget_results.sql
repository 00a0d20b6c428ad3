-- forget_results: delete results that need not be kept any longer, in batches.
create or replace function redrive.forget_results_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with gone as (
        delete from redrive.results r using (
            select o.job from redrive.results o
            where o.keep_until < clock_timestamp()
            order by o.keep_until limit batch for update skip locked) p
        where r.job = p.job
        returning 1)
    select count(*)::int from gone
$$;

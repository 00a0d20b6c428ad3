-- side_effects: keep what handlers report while their jobs run; a batch.
-- in:    parallel arrays; fenced like every other write after a claim
create or replace function redrive.side_effects_v1(
    workers int[], ids bigint[], tokens int[], whats text[], details jsonb[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    with told as materialized (
        select * from unnest(workers, ids, tokens, whats, details) as v(worker, id, token, what, detail)),
    marked as (
        update redrive.jobs j set noted = true
        from (select distinct t.worker, t.id, t.token from told t) t
        where j.id = t.id and j.deliveries = t.token and j.worker = t.worker
        returning j.id)
    insert into redrive.side_effects (job, deliveries, what, detail)
    select t.id, t.token, t.what, t.detail from told t join marked m on m.id = t.id;
end
$$;

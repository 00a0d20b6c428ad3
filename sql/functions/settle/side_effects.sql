-- side_effects: store a batch of side effects that handlers report while their jobs run.
-- in:    parallel arrays; the ownership is checked as in each other write after a claim
-- out:   the jobs to send again
-- locks: job rows skip locked. A handler may hold its own job in a transaction that stays open for
--        any time. A worker that waited for it would settle and claim nothing meanwhile
create or replace function redrive.side_effects_v1(
    workers int[], ids bigint[], deliveries int[], whats text[], details jsonb[]) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with told as materialized (
        select *
        from unnest(workers, ids, deliveries, whats, details, redrive.claims_of_v1(workers, ids))
            as v(worker, id, deliveries, what, detail, claim)),
    here as materialized (
        select j.id from redrive.jobs j
        where j.id = any (ids)
          and exists (select from told t
                      where t.id = j.id and t.claim is not null
                        and t.deliveries = j.deliveries + 1)),
    free as materialized (
        select j.id from redrive.jobs j where j.id = any (array(select h.id from here h))
        for no key update skip locked),
    marked as (
        update redrive.jobs j set noted = true
        from (select distinct t.worker, t.claim, t.id, t.deliveries from told t
              where t.id in (select f.id from free f)) t
        where j.id = t.id and t.claim is not null and j.deliveries = t.deliveries - 1
        returning j.id, t.worker, t.deliveries),
    kept as (
        insert into redrive.side_effects (job, deliveries, what, detail)
        select t.id, t.deliveries, t.what, t.detail from told t
        join marked m on m.id = t.id and m.worker = t.worker and m.deliveries = t.deliveries)
    select h.id from here h where h.id not in (select f.id from free f);
end
$$;

-- keep_checkpoints: store the data from which the next attempts of these jobs continue.
-- A call holds a job only once.
-- in:    parallel arrays; the ownership is checked as in each other write after a claim
-- out:   the jobs that this worker still owns; is_kept: false: send it again
-- locks: job rows skip locked, as side_effects
-- plan:  claims_pkey, jobs_pkey, checkpoints_pkey
create or replace function redrive.keep_checkpoints_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], data jsonb[])
returns table (id bigint, delivery int, is_kept boolean)
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
    with here as materialized (
        select j.id, t.deliveries, t.data
        from unnest(workers, claims, ids, deliveries, data)
            as t(worker, claim, id, deliveries, data)
        join redrive.claims k on k.id = t.claim and k.worker = t.worker
        join redrive.jobs j on j.id = t.id and j.deliveries = t.deliveries - 1
        where j.id = any (keep_checkpoints_v1.ids)),
    -- Rows are checked again once they are locked: a session that takes a job back waits for us, or
    -- was first.
    free as materialized (
        select j.id from here h
        join redrive.jobs j on j.id = h.id and j.deliveries = h.deliveries - 1
        where j.id = any (keep_checkpoints_v1.ids)
        for no key update of j skip locked),
    marked as (
        update redrive.jobs j set noted = true
        where j.id = any (array(select f.id from free f)) and not j.noted),
    kept as (
        insert into redrive.checkpoints as c (job, deliveries, data)
        select h.id, h.deliveries, h.data from here h where h.id in (select f.id from free f)
        on conflict (job) do update
        set deliveries = excluded.deliveries, at = excluded.at, data = excluded.data)
    select h.id, h.deliveries, h.id in (select f.id from free f) from here h;
end
$$;

-- keep_progress: store how far these jobs are.
-- A call holds a job only once. The ownership is checked. A refused report is dropped, because the
-- next one comes soon.
-- locks: job rows skip locked
-- plan:  claims_pkey, jobs_pkey, progress_pkey
create or replace function redrive.keep_progress_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], shares float8[], details jsonb[])
returns void
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
    with here as materialized (
        select j.id, t.deliveries, t.share, t.detail
        from unnest(workers, claims, ids, deliveries, shares, details)
            as t(worker, claim, id, deliveries, share, detail)
        join redrive.claims k on k.id = t.claim and k.worker = t.worker
        join redrive.jobs j on j.id = t.id and j.deliveries = t.deliveries - 1
        where j.id = any (keep_progress_v1.ids)),
    -- Lock even a row that is marked already: a job that ends meanwhile must not leave a row
    -- behind.
    free as materialized (
        select j.id from here h
        join redrive.jobs j on j.id = h.id and j.deliveries = h.deliveries - 1
        where j.id = any (keep_progress_v1.ids)
        for no key update of j skip locked),
    marked as (
        update redrive.jobs j set noted = true
        where j.id = any (array(select f.id from free f)) and not j.noted)
    insert into redrive.progress as p (job, deliveries, share, detail)
    select h.id, h.deliveries, h.share, h.detail from here h where h.id in (select f.id from free f)
    on conflict (job) do update
    set deliveries = excluded.deliveries, at = excluded.at, share = excluded.share,
        detail = excluded.detail;
end
$$;

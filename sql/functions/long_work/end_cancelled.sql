-- end_cancelled: record that jobs of a batch end now as cancelled, for as long as keys are kept.
-- settle calls it before it deletes the jobs.
-- in:    as settle
-- locks: the job rows of the whole batch, ascending, as settle does next, so that both find the
--        same ownership
-- plan:  jobs_pkey, claims_pkey
create or replace function redrive.end_cancelled_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], outcomes text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    gone bigint[];
begin
    perform from redrive.jobs j
    where j.id = any (end_cancelled_v1.ids) order by j.id for update;
    with ended as (
        insert into redrive.results as r (job, deliveries, outcome, keep_until)
        select v.id, v.deliveries, 'cancelled', clock_timestamp() + t.keep
        from unnest(workers, claims, ids, deliveries, outcomes)
            as v(worker, claim, id, deliveries, outcome)
        join redrive.retention t on t.what = 'keys'
        join redrive.jobs j on j.id = v.id
        where v.outcome = 'cancel' and j.id = any (end_cancelled_v1.ids)
          and j.deliveries = v.deliveries - 1
          and exists (select from redrive.claims k
                      where k.id = v.claim and k.worker = v.worker)
        on conflict (job) do update
        set deliveries = excluded.deliveries, outcome = excluded.outcome, result = null,
            keep_until = excluded.keep_until
        returning job)
    select array_agg(e.job) into gone from ended e;
    if gone is not null and exists (select from redrive.history_queues) then
        perform redrive.keep_history_v1(
            'cancelled', array_agg(v.worker), array_agg(v.id), array_agg(v.deliveries),
            clock_timestamp())
        from unnest(workers, ids, deliveries, outcomes) as v(worker, id, deliveries, outcome)
        where v.id = any (gone) and v.outcome = 'cancel';
    end if;
    perform redrive.drop_checkpoints_v1(gone);
end
$$;

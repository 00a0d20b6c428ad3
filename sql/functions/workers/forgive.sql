-- forgive: take back what a loss cost the jobs of a worker that is there again.
-- The worker was thought lost, but it was only stopped for a while or cut off. So its jobs killed
-- no process.
-- in:    parallel arrays: ids, deliveries (as it had claimed them)
-- out:   the jobs whose losses were taken back
-- locks: jobs, ascending, then their dead letters, then their failures; skip locked. A handler of
--        the worker may have locked a job's row. That job has no loss, because a rescue skips it
--        Then the end of the audit log, nowait, if a dead letter goes back to work
-- errors: 55P03 if the audit log is locked: nothing was changed, try again
-- plan:  jobs_pkey, failures_pkey, dead_letters_pkey
-- The failure stays on record, but not as a loss. So judge_loss and run_alone ignore it, and a
-- second call finds nothing. A job is forgiven at most ten times: if its worker stands still under
-- it each time, the job may be the cause. A job that died of its losses meanwhile goes back to
-- work, unless its kind needs two people.
create or replace function redrive.forgive_v1(ids bigint[], deliveries int[]) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    most constant int := 10;
    free bigint[];
    forgiven bigint[];
    dead bigint[];
    campaign bigint;
begin
    free := array(
        select j.id from redrive.jobs j
        where j.id = any (ids) order by j.id for update skip locked);
    -- before their failures, as a purge
    free := free || array(
        select d.id from redrive.dead_letters d
        where d.id = any (ids) and d.state = 'open' order by d.id for update skip locked);
    with mended as (
        update redrive.failures f
        set category = 'transient', message = 'the worker was silent while it held the job'
        from unnest(ids, forgive_v1.deliveries) as h(id, deliveries)
        where f.job = h.id and f.job = any (free) and f.deliveries = h.deliveries
          and f.error_class = 'WorkerLost' and f.category = 'lost'
          and (select count(*) from redrive.failures o
               where o.job = f.job and o.error_class = 'WorkerLost' and o.category = 'transient')
              < most
        returning f.job)
    select array_agg(m.job) into forgiven from mended m;
    update redrive.jobs j set losses = j.losses - 1
    where j.id = any (forgiven) and j.losses > 0;
    select array_agg(d.id order by d.id) into dead
    from redrive.dead_letters d
    where d.id = any (forgiven) and d.state = 'open' and d.reason = 'killed_worker'
      and not exists (select from redrive.approvals a where a.kind = d.kind);
    if dead is not null then
        perform from redrive.audit_chain c for update nowait;
        campaign := redrive.open_campaign_v1(
            'redrive', 'its worker is back, so the job did not kill it',
            jsonb_build_object('ids', dead), null, cardinality(dead));
        perform redrive.redrive_v1(dead, campaign, null, null, 2147483647, false);
        perform redrive.close_campaign_v1(campaign, cardinality(dead), '{}');
    end if;
    return query select unnest(forgiven);
end
$$;

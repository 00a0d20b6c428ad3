-- forgive: a worker that was thought lost is there again, so what it held killed no process: it was
-- stopped for a while, or cut off. What that cost its jobs is taken back.
-- in:    parallel arrays: ids, deliveries (as it had claimed them)
-- out:   the jobs that had been charged
-- locks: jobs, ascending, then their dead letters, then their failures; skip locked. A job whose row a
--        handler of the worker has locked was not charged: a rescue leaves such a job alone
--        Then the end of the audit log, nowait, where one that is dead goes back to work
-- errors: 55P03 where somebody has locked that: nothing was changed, come again
-- plan:  jobs_pkey, failures_pkey, dead_letters_pkey
-- The failure stays on record, but not as a loss: neither judge_loss nor run_alone goes by it, and a
-- second call finds nothing. Ten times at most: what its worker stands still under each time is not
-- innocent of that. One that died of its losses meanwhile goes back to work, unless two
-- people decide on its kind.
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
            'redrive', 'its worker is there again: the job had not killed it',
            jsonb_build_object('ids', dead), null, cardinality(dead));
        perform redrive.redrive_v3(dead, campaign, null, null, 2147483647, false);
        perform redrive.close_campaign_v1(campaign, cardinality(dead), '{}');
    end if;
    return query select unnest(forgiven);
end
$$;

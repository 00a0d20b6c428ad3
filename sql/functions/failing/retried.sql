-- retried: list the released jobs of a campaign over failing jobs whose attempt has ended.
-- A job that is gone without a dead letter has succeeded, unless it was cancelled: results says so
-- of a job that ran, and deliveries below 0 of a job that waited. A job that was cancelled, snoozed
-- or released is neither a success nor a failure.
-- in:    since: when the campaign was planned
-- plan:  campaign_jobs_redriven_idx, jobs_pkey, dead_letters_pkey, results_pkey
create or replace function redrive.retried_v1(campaign bigint, since timestamptz)
returns table (n int, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set jit = off
as $$
    select j.n,
           case when d.id is not null or b.failed_at > retried_v1.since then 'dead_again'
                when b.id is null and j.deliveries >= 0 and r.job is null then 'succeeded'
                else 'cancelled' end
    from redrive.campaign_jobs j
    left join redrive.jobs b on b.id = j.id and b.redrives = j.redrives
    left join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
    left join redrive.results r
        on r.job = j.id and r.outcome = 'cancelled' and r.deliveries > j.deliveries
    where j.campaign = retried_v1.campaign and j.state = 'redriven'
      and (b.id is null or b.deliveries > j.deliveries)
$$;

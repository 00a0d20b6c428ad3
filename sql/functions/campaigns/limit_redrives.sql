-- limit_redrives: make redriven jobs count under the redrive_rate of their kinds.
-- The rate is a limit like any other. All campaigns and all workers share its key, so two campaigns
-- of a kind do not add up, and a restart or a clock that is set changes nothing.
-- in:    jobs that this transaction has put back, so no worker has claimed them
-- plan:  jobs_pkey; kind_redrives is small
create or replace function redrive.limit_redrives_v1(ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    of_kind text;
    its_jobs bigint[];
begin
    for of_kind, its_jobs in
        select r.kind, array_agg(j.id)
        from redrive.jobs j
        cross join lateral (
            select k.kind, k.rate from redrive.kind_redrives k
            where redrive.handles_v1(array[k.kind], j.kind)
            order by length(k.kind) desc limit 1) r
        where j.id = any (ids) and r.rate is not null
        group by r.kind order by r.kind
    loop
        perform redrive.add_limit_v1(its_jobs, '$redrive:' || of_kind);
    end loop;
end
$$;

-- failing_causes: return each queue's causes of jobs that have failed and not ended yet.
-- out:   at most 10,000 pairs of a queue and a fingerprint, as a row for each queue
-- plan:  jobs_failing_idx: a descent for each pair, and none of the other jobs. Before Postgres 18, a
--        function in plain SQL would be planned at each call
create or replace function redrive.failing_causes_v1()
returns table (queue text, fingerprints text[])
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with recursive walk as (
        (select j.fingerprint, j.queue from redrive.jobs j where j.failed_at is not null
         order by j.fingerprint, j.queue limit 1)
        union all
        select n.fingerprint, n.queue from walk w
        cross join lateral (
            select j.fingerprint, j.queue from redrive.jobs j
            where j.failed_at is not null and (j.fingerprint, j.queue) > (w.fingerprint, w.queue)
            order by j.fingerprint, j.queue limit 1) n)
    select w.queue, array_agg(w.fingerprint)
    from (select * from walk limit 10000) w group by w.queue;
end
$$;

-- complete_with_results: complete jobs, and keep the results that their handlers returned.
-- in:    as complete; returned: ids of the batch, with their results and for how many seconds to
--        keep them
-- out:   as complete
create or replace function redrive.complete_with_results_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], ended bigint[],
    returned bigint[], results jsonb[], keeps float8[])
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    settled bigint[] := redrive.complete_v1(workers, claims, ids, deliveries, ended);
begin
    -- A worker that no longer owns a job must not store its result.
    insert into redrive.results as r (job, deliveries, outcome, result, keep_until)
    select v.id, d.deliveries, 'succeeded', v.result,
           clock_timestamp() + v.keep * interval '1 second'
    from unnest(returned, results, keeps) as v(id, result, keep)
    join unnest(ids, deliveries) as d(id, deliveries) on d.id = v.id
    where settled is null or v.id = any (settled)
    on conflict (job) do update
    set deliveries = excluded.deliveries, outcome = excluded.outcome, result = excluded.result,
        keep_until = excluded.keep_until;
    return settled;
end
$$;

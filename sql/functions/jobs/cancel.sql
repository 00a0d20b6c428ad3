-- cancel: cancel jobs. Audited.
-- Waiting jobs end now. The workers of running jobs are told, and those jobs end when their
-- handlers respond.
-- out:   id, outcome: cancelled | asked; a job without a row is not live
-- locks: cancellations, then as hold_waiting, so that no worker claims the jobs meanwhile
-- plan:  jobs_pkey, claims_lane_idx
-- A job that is found running may come back before its worker hears of this. Then
-- end_cancellations_v1 ends it.
create or replace function redrive.cancel_v1(ids bigint[], actor text, why text)
returns table (id bigint, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    done bigint[];
    asked bigint[];
begin
    -- Before the jobs, as in end_cancellations_v1, so that the two never wait in a circle.
    insert into redrive.cancellations (job, redrives, actor, why)
    select j.id, j.redrives, cancel_v1.actor, cancel_v1.why from redrive.jobs j
    where j.id = any (cancel_v1.ids)
    order by j.id
    -- a cancellation of an earlier generation is not handled yet
    on conflict (job) do update set redrives = excluded.redrives, actor = excluded.actor,
                                    why = excluded.why
        where cancellations.redrives <> excluded.redrives;
    done := redrive.end_waiting_v1(cancel_v1.ids, true);
    delete from redrive.cancellations c where c.job = any (done);
    select coalesce(array_agg(c.job order by c.job), '{}') into asked
    from redrive.cancellations c where c.job = any (cancel_v1.ids);
    insert into redrive.audit (actor, action, why, n, detail)
    select cancel_v1.actor, 'cancel', cancel_v1.why, cardinality(done || asked),
           jsonb_build_object('ids', to_jsonb(done || asked), 'asked', to_jsonb(asked))
    where cardinality(done || asked) > 0;
    return query
    select d.id, 'cancelled' from unnest(done) as d(id)
    union all
    select a.id, 'asked' from unnest(asked) as a(id);
end
$$;

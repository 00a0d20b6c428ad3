-- plan_retry: freeze the failing jobs of a group that wait for another attempt, oldest first.
-- Nothing else changes. A plan is deleted after one day if nobody starts it. A plan without jobs is
-- not kept.
-- out:   as plan_campaign; its campaign's filter has the field failing
-- plan:  jobs_failing_idx
create or replace function redrive.plan_retry_v1(fingerprint text, actor text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    plan_id bigint;
    report jsonb;
begin
    perform redrive.check_actor_v1(actor);
    insert into redrive.campaigns (actor, filter, matched, state, planned_by, planned_login)
    values (plan_retry_v1.actor,
            jsonb_build_object('group', plan_retry_v1.fingerprint, 'failing', true),
            0, 'planned', plan_retry_v1.actor, session_user)
    returning id into plan_id;
    with frozen as (
        insert into redrive.campaign_jobs (campaign, n, id, redrives, deliveries)
        select plan_id, (row_number() over (order by j.id))::int, j.id, j.redrives, j.deliveries
        from redrive.jobs j
        where j.fingerprint = plan_retry_v1.fingerprint and j.failed_at is not null
          and j.run_at > clock_timestamp() and j.run_at < 'infinity'
        returning id, n)
    select jsonb_build_object(
        'plan', plan_id, 'matched', count(*), 'blocked', '{}'::jsonb,
        'sample', coalesce(jsonb_agg(f.id order by f.n) filter (where f.n <= 5), '[]'),
        'kinds', coalesce(jsonb_agg(distinct j.kind) filter (where j.id is not null), '[]'),
        'queues', coalesce(jsonb_agg(distinct j.queue) filter (where j.id is not null), '[]'))
    into report
    from frozen f left join redrive.jobs j on j.id = f.id;
    if (report ->> 'matched')::int = 0 then
        delete from redrive.campaigns c where c.id = plan_id;
        return report || '{"plan": null}';
    end if;
    update redrive.campaigns c
    set matched = (report ->> 'matched')::int, plan = report,
        filter = c.filter || jsonb_build_object('kind', report -> 'kinds')
    where c.id = plan_id;
    return report;
end
$$;

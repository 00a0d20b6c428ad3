-- Print failed jobs of Procrastinate as lines for an import:
--   psql -qAtX -f procrastinate_dead.sql "$SHOP" | redrive dlq import - --source procrastinate
select jsonb_strip_nulls(jsonb_build_object(
    'source_id', j.id,
    'kind', left(regexp_replace(j.task_name, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    'queue', left(regexp_replace(j.queue_name, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    'payload', j.args,
    'attempts', greatest(j.attempts, 1),
    'error_class', 'procrastinate.failed',
    'message', 'Procrastinate keeps no error; the log of its worker has it',
    'created_at', e.deferred_at,
    'died_at', e.failed_at))::text
from procrastinate_jobs j
left join lateral (
    select min(v.at) filter (where v.type = 'deferred') as deferred_at,
           max(v.at) filter (where v.type = 'failed') as failed_at
    from procrastinate_events v where v.job_id = j.id) e on true
where j.status = 'failed'
order by j.id;

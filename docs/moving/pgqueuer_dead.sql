-- Print failed jobs of PgQueuer as lines for an import:
--   psql -qAtX -f pgqueuer_dead.sql "$SHOP" | redrive dlq import - --source pgqueuer
-- PgQueuer keeps failed jobs and payloads only for entrypoints with on_failure="hold".
select jsonb_strip_nulls(jsonb_build_object(
    'source_id', j.id,
    'kind', left(regexp_replace(j.entrypoint, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    'payload', coalesce(convert_from(j.payload, 'UTF8')::jsonb, '{}'),
    'attempts', j.attempts + 1,
    'error_class', l.traceback ->> 'exception_type',
    'message', l.traceback ->> 'exception_message',
    'stack', l.traceback ->> 'traceback',
    'created_at', j.created,
    'died_at', j.updated))::text
from pgqueuer j
left join lateral (
    select o.traceback from pgqueuer_log o
    where o.job_id = j.id and o.status = 'failed' order by o.id desc limit 1) l on true
where j.status = 'failed'
order by j.id;

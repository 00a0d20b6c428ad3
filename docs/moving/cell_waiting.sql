-- Print the waiting jobs of a tenant as lines for redrive enqueue:
--   psql -XqAt -v tenant=customer-7 -f cell_waiting.sql "$EU" > waiting.jsonl
-- A job that is unique only for a time is enqueued without its key.
select jsonb_build_object(
    'kind', kind, 'queue', queue, 'payload', payload, 'headers', headers, 'tenant', tenant,
    'ordering_key', ordering_key, 'priority', priority, 'max_attempts', max_attempts,
    'idempotency_key', case when idempotency_key not like '$unique:%' then idempotency_key end,
    'run_at', case when run_at < 'infinity' then run_at else created_at end,
    'expires_in', extract(epoch from expires_at - now()))::text
from redrive.jobs
where tenant = :'tenant'
order by id;

-- Print the open dead letters of a tenant as lines for redrive dlq import:
--   psql -XqAt -v tenant=customer-7 -f cell_dead.sql "$EU" > dead.jsonl
select jsonb_build_object(
    'source_id', d.id || '.' || d.redrives, 'kind', d.kind, 'queue', d.queue,
    'payload', d.payload, 'headers', d.headers, 'tenant', d.tenant,
    'idempotency_key', case when d.idempotency_key not like '$unique:%' then d.idempotency_key end,
    'reason', d.reason, 'category', d.category, 'error_class', d.error_class,
    'message', d.message, 'attempts', d.attempts,
    'created_at', d.created_at, 'died_at', d.died_at,
    'stack', (
        select string_agg(format('File "%s", line %s, in %s', s.at ->> 'file', s.at ->> 'line',
                                 s.at ->> 'function'), e'\n' order by s.n)
        from redrive.failures f,
        jsonb_array_elements(f.detail -> 'stack') with ordinality as s(at, n)
        where f.job = d.id and f.deliveries = d.deliveries))::text
from redrive.dead_letters d
where d.tenant = :'tenant' and d.state = 'open'
order by d.died_at, d.id;

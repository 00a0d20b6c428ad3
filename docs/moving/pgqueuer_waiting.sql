-- Move waiting jobs from PgQueuer to Redrive, in one statement. At any time, each job
-- is in only one of the two. Both must be in one database. Jobs that PgQueuer is running
-- end in PgQueuer.
--   psql -X -f pgqueuer_waiting.sql "$SHOP"
with waiting as (
    select j.id from pgqueuer j
    where j.status = 'queued'                  -- and j.entrypoint = 'charge'
    order by j.id for update skip locked),
taken as (
    delete from pgqueuer j using waiting w
    where j.id = w.id
    returning j.id, j.entrypoint, j.payload, j.execute_after, j.priority)
select count(redrive.enqueue(
    kind => left(regexp_replace(t.entrypoint, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    payload => coalesce(convert_from(t.payload, 'UTF8')::jsonb, '{}'),
    run_at => t.execute_after,
    priority => -greatest(least(t.priority, 1000), -1000)))  -- PgQueuer runs the highest first
    as moved
from (select * from taken order by id) t;

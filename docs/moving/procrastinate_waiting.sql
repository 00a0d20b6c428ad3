-- Jobs that wait in Procrastinate, enqueued in Redrive: all in one statement, so each is in one of
-- the two at any time. Both in one database. What runs there now ends there.
--   psql -X -f procrastinate_waiting.sql "$SHOP"
with waiting as (
    select j.id from procrastinate_jobs j
    where j.status = 'todo'                    -- and j.task_name = 'shop.charge', one by one
    order by j.id for update skip locked),
taken as (
    update procrastinate_jobs j set status = 'cancelled' from waiting w
    where j.id = w.id
    returning j.id, j.task_name, j.queue_name, j.args, j.scheduled_at, j.priority, j.lock)
select count(redrive.enqueue(
    kind => left(regexp_replace(lower(t.task_name), '[^a-z0-9_.-]', '_', 'g'), 63),
    payload => t.args,
    queue => left(regexp_replace(lower(t.queue_name), '[^a-z0-9_.-]', '_', 'g'), 63),
    run_at => t.scheduled_at,
    priority => -greatest(least(t.priority, 1000), -1000),   -- there the highest comes first
    ordering_key => nullif(t.lock, ''))) as moved
from (select * from taken order by id) t;

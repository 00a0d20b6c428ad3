-- Move waiting jobs from Procrastinate to Redrive, in one statement. At any time, each
-- job is in only one of the two. Both must be in one database. Jobs that Procrastinate is
-- running end in Procrastinate.
--   psql -X -f procrastinate_waiting.sql "$SHOP"
with waiting as (
    select j.id from procrastinate_jobs j
    where j.status = 'todo'                    -- and j.task_name = 'shop.charge'
    order by j.id for update skip locked),
taken as (
    update procrastinate_jobs j set status = 'cancelled' from waiting w
    where j.id = w.id
    returning j.id, j.task_name, j.queue_name, j.args, j.scheduled_at, j.priority, j.lock)
select count(redrive.enqueue(
    kind => left(regexp_replace(t.task_name, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    payload => t.args,
    queue => left(regexp_replace(t.queue_name, '[^A-Za-z0-9_.-]', '_', 'g'), 63),
    run_at => t.scheduled_at,
    priority => -greatest(least(t.priority, 1000), -1000),   -- Procrastinate runs the highest first
    ordering_key => nullif(t.lock, ''))) as moved
from (select * from taken order by id) t;

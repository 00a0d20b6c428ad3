-- run_alone: record that a job has its worker's whole pod to itself, or no longer has.
-- in:    me: the worker id that holds the job; job: its id, or null when it is over
-- out:   after this many seconds, the job has run longer than it took to lose any process so far;
--        null: the worker was declared lost
-- locks: the worker row
create or replace function redrive.run_alone_v1(me int, job bigint) returns float8
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    update redrive.workers w set alone = run_alone_v1.job
    where w.id = me and w.lost_at is null
    returning coalesce(
        (select max((f.detail ->> 'ran_at_most')::float8) from redrive.failures f
         where f.job = run_alone_v1.job and f.category = 'lost'), 60)
$$;

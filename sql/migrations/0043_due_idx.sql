-- concurrently: a table of any size is read for it, and workers claim on meanwhile
-- serves: 8
-- While the table is empty, all its indexes cost the same to the planner, and one that has the id anywhere can be taken
-- for a look-up by id: such a plan, kept, walks all jobs for each that is settled. What names a queue finds this index
-- as before; what names none does not see it.
drop index concurrently if exists redrive.jobs_waiting_idx;
create index concurrently jobs_waiting_idx on redrive.jobs (queue, priority, lane, run_at, id) where queue is not null;
drop index concurrently if exists redrive.jobs_due_idx;
alter index redrive.jobs_waiting_idx rename to jobs_due_idx;

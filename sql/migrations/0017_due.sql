-- concurrently: a table of any size is read for it, and producers go on meanwhile
-- serves: 8
-- Jobs of one instant have an order, so that a place in a lane is one job. Until it is there a claim sorts the jobs of one
-- instant itself.
drop index concurrently if exists redrive.jobs_due_idx;
create index concurrently jobs_due_idx on redrive.jobs (queue, priority, lane, run_at, id);
drop index concurrently if exists redrive.jobs_ready_idx;

-- serves: 8
-- What a worker last said of its jobs, so that whoever rescues them knows which had started: {"slots": n,
-- "running": {id: seconds}, "waiting": [[ids in a runner's order] ...]}; null: a worker of the release before.
alter table redrive.workers add column progress jsonb;
-- The job that has the whole pod to itself: if the worker is lost meanwhile there is no doubt whose doing it was.
alter table redrive.workers add column alone bigint;
-- Attempts given back because a dependency was to blame; null (as short as a row can be): none.
alter table redrive.jobs add column refunds int;

-- serves: 8
-- Each worker says how long its silence means nothing; null: a worker of the release before, judged by whoever rescues.
alter table redrive.workers add column ttl interval;

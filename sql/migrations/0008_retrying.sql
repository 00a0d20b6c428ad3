-- concurrently: a table of any size is read for it, and producers go on meanwhile
-- serves: 7
-- Counting the retrying jobs of a queue reads this index alone. It holds only jobs that have failed, and a retry writes
-- run_at anyway, so a claim still changes nothing that an index mentions.
drop index concurrently if exists redrive.jobs_retrying_idx;
create index concurrently jobs_retrying_idx on redrive.jobs (queue, run_at) where failed_at is not null;

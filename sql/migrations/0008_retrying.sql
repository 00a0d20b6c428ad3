-- Counting the retrying jobs of a queue reads this index alone. It holds only jobs that have failed, and a retry writes
-- run_at anyway; a claim still changes nothing that an index mentions.
drop index redrive.jobs_retrying_idx;
create index jobs_retrying_idx on redrive.jobs (queue, run_at) where failed_at is not null;

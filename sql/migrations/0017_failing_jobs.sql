-- concurrently: a table of any size is read for it
-- serves: 1
-- The failing jobs of a group, found without the others. This index takes the place of another one,
-- so a failed attempt writes as many index entries as before.
drop index concurrently if exists redrive.jobs_failing_idx;
create index concurrently jobs_failing_idx on redrive.jobs (fingerprint, queue, run_at)
    where failed_at is not null;
drop index concurrently if exists redrive.jobs_retrying_idx;

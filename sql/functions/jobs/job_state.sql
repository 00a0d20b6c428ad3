-- job_state: return the state of a live job.
-- in:    worker: the worker that holds it
-- out:   running | blocked | ready | retrying | scheduled
create or replace function redrive.job_state_v1(
    run_at timestamptz, failed_at timestamptz, worker int) returns text
language sql stable
return case when worker is not null then 'running'
            when run_at = 'infinity' then 'blocked'
            when run_at <= now() then 'ready'
            when failed_at is not null then 'retrying'
            else 'scheduled' end;

-- is_failing: return true if a live job of a group has failed and not ended yet.
-- plan:  jobs_failing_idx
create or replace function redrive.is_failing_v1(fingerprint text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select exists (select from redrive.jobs j
                   where j.fingerprint = is_failing_v1.fingerprint and j.failed_at is not null)
$$;

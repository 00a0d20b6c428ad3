-- unique_fault: return what is wrong with a job's options such as delay and unique_for, or null.
-- out:   'field: rule'
create or replace function redrive.unique_fault_v1(
    payload jsonb, run_at timestamptz, idempotency_key text, delay interval, unique_for interval,
    unique_by text[], on_conflict text, batch bigint) returns text
language sql immutable parallel safe
return case
    when delay not between interval '0' and interval '100 years'
        then 'delay: must lie between 0 and 100 years'
    when delay is not null and run_at is not null then 'delay: give it or run_at, not both'
    when unique_for not between interval '1 ms' and interval '100 years'
        then 'unique_for: must lie between 1 ms and 100 years'
    when unique_for is not null and idempotency_key is not null
        then 'unique_for: give it or idempotency_key, not both'
    when unique_for is null and unique_by is not null
        then 'unique_by: needs unique_for, how long the job is unique'
    when unique_for is null and on_conflict is not null
        then 'on_conflict: needs unique_for, how long the job is unique'
    when cardinality(unique_by) not between 1 and 16 or array_position(unique_by, null) is not null
        then 'unique_by: must be 1 to 16 names of fields of the payload'
    when on_conflict not in ('skip', 'replace') then 'on_conflict: must be skip or replace'
    when on_conflict = 'replace' and batch is not null
        then 'on_conflict: a job of a batch cannot be replaced; leave it out'
    when unique_for is not null and payload ? '$redrive' and not payload -> '$redrive' ? 'u'
        then 'unique_for: an encrypted payload needs the digest of this release''s client' end;

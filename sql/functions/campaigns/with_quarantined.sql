-- with_quarantined: does a campaign over this filter put back what is in quarantine, too? Only where
-- somebody said so, or named the dead letters.
create or replace function redrive.with_quarantined_v1(filter jsonb) returns boolean
language sql immutable
return filter ? 'ids' or coalesce((filter ->> 'include_quarantined')::boolean, false);

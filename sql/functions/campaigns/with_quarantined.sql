-- with_quarantined: return true if a campaign with this filter also redrives quarantined dead
-- letters.
-- It does so only if the filter says so or names the dead letters by id.
create or replace function redrive.with_quarantined_v1(filter jsonb) returns boolean
language sql immutable
return filter ? 'ids' or coalesce((filter ->> 'include_quarantined')::boolean, false);

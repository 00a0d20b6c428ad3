-- recent_losses: how many processes died under a job, as far as it still counts against it.
-- A day without another one is evidence of its own: what kills its process does so again.
create or replace function redrive.recent_losses_v1(losses int, failed_at timestamptz) returns int
language sql stable
return case when failed_at < now() - interval '1 day' then 0 else losses end;

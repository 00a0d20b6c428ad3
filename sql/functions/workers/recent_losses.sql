-- recent_losses: return how many processes that died under a job still count against it.
-- A day without another loss clears them, because a job that kills its process does so again.
create or replace function redrive.recent_losses_v1(losses int, failed_at timestamptz) returns int
language sql stable
return case when failed_at < now() - interval '1 day' then 0 else losses end;

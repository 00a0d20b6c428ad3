-- is_alive: return true if a worker is not declared lost and was heard within its own ttl.
create or replace function redrive.is_alive_v1(seen_at timestamptz, lost_at timestamptz, ttl interval)
returns boolean
language sql stable
return lost_at is null and seen_at > clock_timestamp() - coalesce(ttl, interval '30 seconds');

-- is_alive: whether a worker lives: nobody has declared it lost, and it was heard within its own ttl.
create or replace function redrive.is_alive_v1(seen_at timestamptz, lost_at timestamptz, ttl interval)
returns boolean
language sql stable
return lost_at is null and seen_at > clock_timestamp() - coalesce(ttl, interval '30 seconds');

-- next_at: return when all begun jobs and n more would be due at an even pace.
create or replace function redrive.next_at_v1(
    next_at timestamptz, rate float8, burst int, n int, at timestamptz) returns timestamptz
language sql immutable
return least(greatest(next_at, at), at + burst / rate * interval '1 s') + n / rate * interval '1 s';

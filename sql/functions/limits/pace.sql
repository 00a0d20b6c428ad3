-- pace: return what the rate of a name has let begin; null: nothing yet.
-- plan:  limit_paces_pkey from its end, where the only live row is; inlined into the caller's statement
create or replace function redrive.pace_v1(name text)
returns table (n bigint, next_at timestamptz, placed_at timestamptz)
language sql stable
rows 1
begin atomic
    select p.n, p.next_at, p.placed_at from redrive.limit_paces p
    where p.name = pace_v1.name order by p.n desc limit 1;
end;

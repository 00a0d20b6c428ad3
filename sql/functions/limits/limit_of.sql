-- limit_of: what limits a name: its own setting, or that of all that begin so; no row: nothing does.
-- plan:  limits_pkey; the planner makes it a part of the statement that asks
create or replace function redrive.limit_of_v1(name text)
returns table (setting text, concurrency int, rate float8, burst int)
language sql stable
rows 1
begin atomic
    -- a tenth of a second's worth may begin at once
    select l.name, l.concurrency, l.rate, greatest(1, ceil(l.rate * 0.1))::int
    from redrive.limits l
    where l.name in (limit_of_v1.name, split_part(limit_of_v1.name, ':', 1) || ':*')
      and (l.name = limit_of_v1.name or strpos(limit_of_v1.name, ':') > 0)
    order by l.name = limit_of_v1.name desc limit 1;
end;

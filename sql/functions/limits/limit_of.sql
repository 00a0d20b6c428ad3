-- limit_of: return the setting that limits a name: its own, or one for its prefix such as
-- customer:*.
-- The name $redrive:invoice.charge stands for the redrive_rate of that kind's handler.
-- No row means that the name is not limited.
-- plan:  limits_pkey, kind_redrives_pkey; inlined into the caller's statement
create or replace function redrive.limit_of_v1(name text)
returns table (setting text, concurrency int, rate float8, burst int)
language sql stable
rows 1
begin atomic
    -- the jobs of a tenth of a second may begin at once
    select l.name, l.concurrency, l.rate, greatest(1, ceil(l.rate * 0.1))::int
    from (select s.name, s.concurrency, s.rate from redrive.limits s
          where s.name in (limit_of_v1.name, split_part(limit_of_v1.name, ':', 1) || ':*')
            and (s.name = limit_of_v1.name or strpos(limit_of_v1.name, ':') > 0)
          union all
          select '$redrive:' || k.kind, null, k.rate from redrive.kind_redrives k
          where starts_with(limit_of_v1.name, '$redrive:')
            and k.kind = substr(limit_of_v1.name, 10) and k.rate is not null) l
    order by l.name = limit_of_v1.name desc limit 1;
end;

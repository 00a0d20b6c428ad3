-- names_of_limits: list the templates that handlers declare and the names that have a limit.
-- out:   templates such as emails or customer:{customer_id}, and names of limits such as customer:*
create or replace function redrive.names_of_limits_v1() returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select unnest(k.templates) from redrive.kind_limits k
    union
    select l.name from redrive.limits l
$$;

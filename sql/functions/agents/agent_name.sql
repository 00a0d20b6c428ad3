-- agent_name: return the name under which an agent acts, as the audit log keeps it.
create or replace function redrive.agent_name_v1(agent text, person text) returns text
language sql immutable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select 'agent ' || left(agent, 80) || ' on behalf of ' || left(person, 150)
$$;

-- agent_name: return the name under which an agent acts, as the audit log keeps it.
-- The agent chooses its own name, and a program with an agent's login the person's, too. So both are
-- quoted, and hold no quote, no character that nobody sees, and not the words between them.
create or replace function redrive.agent_name_v1(agent text, person text) returns text
language sql immutable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select format('agent "%s" on behalf of "%s"', left(redrive.shown_name_v1(agent), 80),
                  left(redrive.shown_name_v1(person), 150))
$$;

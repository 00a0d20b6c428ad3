-- check_actor: refuse the name of somebody who signed in at the console, unless the caller is the console.
-- Workers pass, because they end what such a person began, under that name. A name of an agent is
-- refused, too, and a name that could begin a line of its own.
-- errors: RD001 'actor: rule'
create or replace function redrive.check_actor_v1(actor text) returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    if actor ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' then
        raise exception using errcode = 'RD001', message = 'actor: must have no control characters';
    end if;
    if starts_with(redrive.person_v1(actor), 'agent"')
       and not pg_has_role(session_user, 'redrive_agent', 'usage') then
        raise exception using errcode = 'RD001', message = format(
            'actor: names an agent, and %s is no login of one', session_user);
    end if;
    if redrive.sign_in_method_v1(actor) is not null
       and not pg_has_role(session_user, 'redrive_console', 'usage')
       and not pg_has_role(session_user, 'redrive_worker', 'usage') then
        raise exception using errcode = 'RD001', message = format(
            'actor: names somebody who signed in, and %s may not; if it is a login of the console, grant redrive_console to it',
            session_user);
    end if;
end
$$;

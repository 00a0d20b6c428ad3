-- sign_in_method: return how a person signed in at the console whom an actor names: oidc, proxy or
-- token. Null: nobody signed in, so the login of the database is the person.
create or replace function redrive.sign_in_method_v1(actor text) returns text
language sql immutable parallel safe security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select substring(redrive.person_v1(actor) from '^(oidc|proxy|token):')
$$;

-- groups_named: list the groups whose names begin with a text. A group whose whole name is the text
-- is listed alone, so that a longer name never hides it.
-- plan:  no index finds the beginning of a name; for dead letters, dead_letters_group_idx finds
--        whole names
create or replace function redrive.groups_named_v1(beginning text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with found as materialized (
        select g.fingerprint as name from redrive.grouped g
        where starts_with(g.fingerprint, beginning))
    select array(select f.name from found f
                 where f.name = beginning or not exists (
                     select from found e where e.name = beginning))
$$;

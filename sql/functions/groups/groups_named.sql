-- groups_named: list the groups whose names begin with a text.
-- plan:  no index finds the beginning of a name; for dead letters, dead_letters_group_idx finds
--        whole names
create or replace function redrive.groups_named_v1(beginning text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select array(select g.fingerprint from redrive.grouped g
                 where starts_with(g.fingerprint, beginning))
$$;

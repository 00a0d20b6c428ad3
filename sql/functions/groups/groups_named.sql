-- groups_named: the groups whose names begin so, and what was asked for itself: a whole name is good
-- for dead letters, too, whose group 0.1.0 had forgotten before them.
-- plan:  no index knows the beginning of a name; of dead letters, dead_letters_group_idx the whole ones
create or replace function redrive.groups_named_v1(beginning text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select array(select g.fingerprint from redrive.grouped g
                 where starts_with(g.fingerprint, beginning)
                 union select beginning)
$$;

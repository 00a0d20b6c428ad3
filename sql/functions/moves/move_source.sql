-- move_source: return the source under which the jobs of an incoming move are imported.
create or replace function redrive.move_source_v1(cell text, move uuid) returns text
language sql immutable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select format('%s %s', move_source_v1.cell, move_source_v1.move)
$$;

-- declare_limits: a worker says what limits its kinds count under. Kinds without any are not limited
-- any more; whoever says so last is right.
-- in:    kinds: all that it handles; templates: {kind: [template ...]}
create or replace function redrive.declare_limits_v1(kinds text[], templates jsonb) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.kind_limits k
    where k.kind = any (kinds) and not declare_limits_v1.templates ? k.kind;
    insert into redrive.kind_limits as k (kind, templates)
    select t.key, array(select jsonb_array_elements_text(t.value)) from jsonb_each(declare_limits_v1.templates) t
    where t.key = any (kinds)
    order by t.key
    on conflict (kind) do update set templates = excluded.templates
        where k.templates <> excluded.templates;
$$;

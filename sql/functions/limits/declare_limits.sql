-- declare_limits: record under which limits a worker's kinds count.
-- A kind without templates is no longer limited. The last declaration wins.
-- in:    kinds: all that the worker handles; templates: {kind: [template ...]}
-- locks: the changed rows, skip locked: if one is locked, another worker is declaring it now
create or replace function redrive.declare_limits_v1(kinds text[], templates jsonb) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.kind_limits k
    where k.kind in (
        select o.kind from redrive.kind_limits o
        where o.kind = any (kinds) and not declare_limits_v1.templates ? o.kind
        for update skip locked);
    with said as (
        select t.key as kind, array(select jsonb_array_elements_text(t.value)) as templates
        from jsonb_each(declare_limits_v1.templates) t where t.key = any (kinds)),
    other as (
        select k.kind, s.templates from redrive.kind_limits k join said s on s.kind = k.kind
        where k.templates <> s.templates
        order by k.kind
        for update of k skip locked),
    changed as (
        update redrive.kind_limits k set templates = o.templates
        from other o where k.kind = o.kind)
    insert into redrive.kind_limits (kind, templates)
    select s.kind, s.templates from said s
    where not exists (select from redrive.kind_limits k where k.kind = s.kind)
    order by s.kind
    on conflict do nothing;
$$;

-- declare_redrives: record what the handlers of a worker say about redrives of their kinds.
-- The last declaration wins. A kind that is no longer declared has no rule.
-- in:    kinds: all that the worker handles; mail.*: all kinds with this prefix
--        terms: {kind: {"rate": redrives a second or null, "repeatable": boolean}}
-- locks: the changed rows, skip locked: if one is locked, another worker is declaring it now
create or replace function redrive.declare_redrives_v1(kinds text[], terms jsonb) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.kind_redrives k
    where k.kind in (
        select o.kind from redrive.kind_redrives o
        where o.kind = any (kinds) and not declare_redrives_v1.terms ? o.kind
        for update skip locked);
    with said as (
        select t.key as kind, (t.value ->> 'rate')::float8 as rate,
               (t.value ->> 'repeatable')::boolean as is_repeatable
        from jsonb_each(declare_redrives_v1.terms) t where t.key = any (kinds)),
    other as (
        select k.kind, s.rate, s.is_repeatable
        from redrive.kind_redrives k join said s on s.kind = k.kind
        where (k.rate, k.is_repeatable) is distinct from (s.rate, s.is_repeatable)
        order by k.kind
        for update of k skip locked),
    changed as (
        update redrive.kind_redrives k set rate = o.rate, is_repeatable = o.is_repeatable
        from other o where k.kind = o.kind)
    insert into redrive.kind_redrives (kind, rate, is_repeatable)
    select s.kind, s.rate, s.is_repeatable from said s
    where not exists (select from redrive.kind_redrives k where k.kind = s.kind)
    order by s.kind
    on conflict do nothing
$$;

-- say_heals: record which kinds of this version heal when all their workers run it.
-- A version that no worker runs any more is deleted after 90 days.
-- in:    policies: {kind: {"canaries": n, "max_rate": jobs a second or null}}
create or replace function redrive.say_heals_v1(version text, policies jsonb) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.heals h
    where (h.kind, h.version) in (
        select o.kind, o.version from redrive.heals o
        where o.first_at < clock_timestamp() - interval '90 days' and o.version <> say_heals_v1.version
          and not exists (select from redrive.workers w
                          where w.lost_at is null and w.version = o.version)
        for update of o skip locked);
    with said as (
        select p.key as kind, (p.value ->> 'canaries')::int as canaries,
               (p.value ->> 'max_rate')::float8 as max_rate
        from jsonb_each(policies) p),
    other as (
        select h.kind, s.canaries, s.max_rate from redrive.heals h join said s on s.kind = h.kind
        where h.version = say_heals_v1.version
          and (h.canaries, h.max_rate) is distinct from (s.canaries, s.max_rate)
        order by h.kind
        for update of h skip locked),
    changed as (
        update redrive.heals h set canaries = o.canaries, max_rate = o.max_rate
        from other o where h.kind = o.kind and h.version = say_heals_v1.version)
    insert into redrive.heals (kind, version, canaries, max_rate)
    select s.kind, say_heals_v1.version, s.canaries, s.max_rate from said s
    where not exists (select from redrive.heals h
                      where h.kind = s.kind and h.version = say_heals_v1.version)
    order by 1
    on conflict do nothing
$$;

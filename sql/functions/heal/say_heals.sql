-- say_heals: which kinds of this version have dead letters tried when all workers of theirs run it.
-- What nobody runs any more is forgotten after 90 days.
-- in:    policies: {kind: {"canaries": n, "max_rate": jobs a second or null}}
create or replace function redrive.say_heals_v1(version text, policies jsonb) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.heals h
    where h.first_at < clock_timestamp() - interval '90 days' and h.version <> say_heals_v1.version
      and not exists (select from redrive.workers w
                      where w.lost_at is null and w.version = h.version);
    insert into redrive.heals as h (kind, version, canaries, max_rate)
    select p.key, say_heals_v1.version, (p.value ->> 'canaries')::int,
           (p.value ->> 'max_rate')::float8
    from jsonb_each(policies) p order by 1
    on conflict on constraint heals_pkey do update
    set canaries = excluded.canaries, max_rate = excluded.max_rate
    where (h.canaries, h.max_rate) is distinct from (excluded.canaries, excluded.max_rate)
$$;

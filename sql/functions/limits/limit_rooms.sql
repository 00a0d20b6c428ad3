-- limit_rooms: return how many more jobs of each of these names may begin now.
-- out:   a row for each name, with its number from 1. slots: by the concurrency alone; room: by the
--        rate, too; both null: it is not limited. used: slots that were counted
-- plan:  limits_pkey, limit_keys_pkey, limit_slots_name_idx from the first slot of the name, and
--        limit_paces_pkey from its end
-- The numbers are exact if the caller has locked the names' keys; else they are an estimate.
create or replace function redrive.limit_rooms_v1(names text[])
returns table (number int, name text, slots int, room int, rate float8, burst int, used int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select n.number::int, n.name, s.n, least(s.n, redrive.tokens_v1(
               coalesce(p.next_at, '2000-01-01 UTC'), l.rate, l.burst, clock_timestamp())),
           l.rate, l.burst, coalesce(l.concurrency - s.n, 0)
    from unnest(names) with ordinality as n(name, number)
    left join lateral redrive.limit_of_v1(n.name) l on true
    left join lateral (
        select o.next_at from redrive.limit_paces o
        where o.name = n.name and l.rate is not null order by o.n desc limit 1) p on true
    cross join lateral (
        select l.concurrency - case when l.concurrency is not null then (
            select count(*)::int from (
                select from redrive.limit_slots s
                where s.name = n.name
                  and s.id >= coalesce((select k.slots_from from redrive.limit_keys k
                                        where k.name = n.name), 0)
                limit l.concurrency) h) end as n) s;
end
$$;

-- limit_room: return how many more jobs of a name may begin now; null: it is not limited.
-- out:   slots: by its concurrency alone; room: by its rate, too
-- plan:  limits_pkey, limit_slots_pkey, limit_keys_pkey
-- The numbers are exact if the caller has locked the name's key; else they are an estimate.
create or replace function redrive.limit_room_v1(
    name text, out slots int, out room int, out rate float8, out burst int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
    select s.n, least(s.n, redrive.tokens_v1(coalesce(k.next_at, '2000-01-01 UTC'), l.rate, l.burst,
                                             clock_timestamp())), l.rate, l.burst
    into slots, room, rate, burst
    from redrive.limit_of_v1(limit_room_v1.name) l
    left join redrive.limit_keys k on k.name = limit_room_v1.name
    cross join lateral (
        select l.concurrency - case when l.concurrency is not null then (
            select count(*) from (select from redrive.limit_slots s
                                  where s.name = limit_room_v1.name limit l.concurrency) h) end
            as n) s;
end
$$;

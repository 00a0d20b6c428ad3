-- advance_slots: move on the place of the first slot of each of these names.
-- Slots that were there at the last call are written again at the end. So a job that runs for long
-- does not keep the place before all that ended since.
-- in:    names: the caller has locked their keys, so nobody else inserts slots
-- locks: these slots, skip locked: a settlement is about to delete such a slot
-- plan:  limit_slots_name_idx from the first slot of each name
create or replace function redrive.advance_slots_v1(names text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    last constant bigint := (select q.last_value from redrive.limit_slots_id_seq q);
begin
    update redrive.limit_slots s set id = default
    where s.ctid = any (array(
        select o.at
        from redrive.limit_keys k
        cross join lateral (
            select l.ctid as at from redrive.limit_slots l
            where l.name = k.name and l.id >= k.slots_from and l.id < k.slots_seen
            for update skip locked) o
        where k.name = any (names)));
    update redrive.limit_keys k
    set slots_seen = last,
        slots_from = coalesce((
            select s.id from redrive.limit_slots s
            where s.name = k.name and s.id >= k.slots_from order by s.id limit 1), last + 1)
    where k.name = any (names);
end
$$;

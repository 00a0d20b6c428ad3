-- set_pace: change what the rate of a name has let begin.
-- in:    null: that one stays as it is
-- locks: the row; the caller has locked the key of the name
create or replace function redrive.set_pace_v1(
    name text, next_at timestamptz, placed_at timestamptz) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_variable
begin
    update redrive.limit_paces p
    set n = p.n + 1, next_at = coalesce(set_pace_v1.next_at, p.next_at),
        placed_at = coalesce(set_pace_v1.placed_at, p.placed_at)
    where p.name = set_pace_v1.name
      and p.n = (select o.n from redrive.limit_paces o where o.name = set_pace_v1.name
                 order by o.n desc limit 1);
    if not found then
        insert into redrive.limit_paces (name, n, next_at, placed_at)
        values (set_pace_v1.name, 1, coalesce(set_pace_v1.next_at, '2000-01-01 UTC'),
                coalesce(set_pace_v1.placed_at, '2000-01-01 UTC'));
    end if;
end
$$;

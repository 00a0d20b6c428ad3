-- kinds_behind: return the kinds whose live workers say that they depend on this breaker.
-- out:   null: no worker says so
create or replace function redrive.kinds_behind_v1(breaker text) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select array_agg(distinct d.key)
    from redrive.workers w cross join lateral jsonb_each(w.depends_on) d
    where d.value ? breaker
$$;

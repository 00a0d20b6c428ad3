-- redrive_rates: return the redrives per second that the handlers of these kinds allow.
-- out:   {kind: rate}, without kinds that have no such limit
-- plan:  kind_redrives is small: one row for each kind whose handler says anything of redrives
create or replace function redrive.redrive_rates_v1(kinds text[]) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select coalesce(jsonb_object_agg(k.kind, r.rate), '{}')
    from unnest(kinds) as k(kind)
    cross join lateral (
        -- by the longest prefix, as a handler is found
        select o.rate from redrive.kind_redrives o
        where redrive.handles_v1(array[o.kind], k.kind)
        order by length(o.kind) desc limit 1) r
    where r.rate is not null
$$;

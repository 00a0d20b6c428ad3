-- forget_samples: delete samples of succeeded jobs after thirty days, and reservoirs of unused
-- kinds.
-- A deleted reservoir makes room for another kind.
-- plan:  reservoir_samples_at_idx
create or replace function redrive.forget_samples_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with pick as materialized (
        select s.kind, s.slot from redrive.reservoir_samples s
        where s.at < clock_timestamp() - interval '30 days'
        order by s.at limit batch for update skip locked),
    gone as (
        delete from redrive.reservoir_samples s using pick p
        where s.kind = p.kind and s.slot = p.slot
        returning 1),
    over as (
        delete from redrive.reservoirs r
        where r.kind = any (array(
            select o.kind from redrive.reservoirs o
            where o.taken_at < clock_timestamp() - interval '30 days'
            limit batch for update skip locked)))
    select count(*)::int from gone
$$;

-- order_keys: put a plan's dead letters of one ordering key into the order of their jobs.
-- The order in which they died does not matter.
create or replace function redrive.order_keys_v1(campaign bigint) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
    with keyed as materialized (
        select j.n, j.id, j.redrives, j.digest, d.queue, d.ordering_key,
               row_number() over (partition by d.queue, d.ordering_key order by j.n) as turn,
               row_number() over (partition by d.queue, d.ordering_key order by j.id) as age
        from redrive.campaign_jobs j
        join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
        where j.campaign = order_keys_v1.campaign and d.ordering_key is not null)
    update redrive.campaign_jobs j set id = b.id, redrives = b.redrives, digest = b.digest
    from keyed a
    join keyed b on b.queue = a.queue and b.ordering_key = a.ordering_key and b.age = a.turn
    where j.campaign = order_keys_v1.campaign and j.n = a.n and b.id <> a.id
$$;

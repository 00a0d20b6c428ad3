-- wake_keys: make the first job of each of these ordering keys due, unless something else holds it.
-- in:    parallel arrays: queues, ordering keys
-- locks: those jobs, skip locked: the session that holds one wakes its key, and unpark checks again
-- plan:  jobs_ordering_idx, jobs_pkey
create or replace function redrive.wake_keys_v1(queues text[], keys text[]) returns void
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
    slots int;
begin
    if coalesce(cardinality(queues), 0) = 0 then
        return;
    end if;
    with heads as (
        select h.id
        from (select distinct v.queue, v.ordering_key
              from unnest(queues, keys) as v(queue, ordering_key)) v
        cross join lateral (
            select o.id from redrive.jobs o
            where o.queue = v.queue and o.ordering_key = v.ordering_key
              and o.id >= coalesce((
                  select k.jobs_from from redrive.hot_keys k
                  where k.queue = v.queue and k.ordering_key = v.ordering_key), 0)
            order by o.id limit 1) h
        -- while a job of the key runs, the session that ends that job wakes the next one
        where not exists (select from redrive.running_keys r
                          where r.queue = v.queue and r.ordering_key = v.ordering_key
                            and r.generation = coalesce((
                                select k.generation from redrive.hot_keys k
                                where k.queue = v.queue and k.ordering_key = v.ordering_key), 0))
          and not redrive.is_key_held_v1(v.queue, v.ordering_key, h.id)
          -- the job has its place in that line
          and not exists (select from redrive.limit_waits w where w.job = h.id)),
    pick as materialized (
        select n.id from redrive.jobs n
        where n.id = any (array(select h.id from heads h))
          and (n.run_at < clock_timestamp() or n.run_at = 'infinity')
        order by n.id for update skip locked),
    woken as (
        update redrive.jobs n set run_at = clock_timestamp(), lane = least(n.lane, ~n.lane)
        where n.id = any (array(select p.id from pick p))
        returning n.queue)
    select bit_or(redrive.wake_slot_v1(w.queue)) into slots from woken w;
    if slots is not null then
        perform pg_notify('redrive', slots::text);
    end if;
end
$$;

-- unpark: wake the first job of each ordering key that nothing woke.
-- Its predecessor ended before it could see this job.
-- Each step also looks for keys that nothing uses, in the next blocks of their tables. So that costs
-- the same, whatever vacuum was not allowed to remove.
-- in:    keys: how many to look at, from the place where the last step ended
-- out:   jobs woken
-- locks: those jobs, skip locked: a locked one delays no other key
-- plan:  jobs_ordering_idx, a few descents for each key. A key in hot_keys is read from its place, so
--        no step walks its dead rows. Upper bounds are on one column: see next_lanes. Ranges of ctids
create or replace function redrive.unpark_v1(keys int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off  -- planned for an empty table, another index would do as well
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    blocks constant int := 512;
    size constant bigint := greatest(
        pg_relation_size('redrive.running_keys'), pg_relation_size('redrive.hot_keys'))
        / current_setting('block_size')::int;
    most constant int := 20000;    -- index entries, of which many may be dead
    start bigint;
    entries bigint;
    head record;
    hot record;            -- the next key in hot_keys
    at_queue text;
    at_key text;
    woken int := 0;
begin
    select case when c.place < size then c.place else 0 end,
           coalesce(c.last_key[1], ''), coalesce(c.last_key[2], '')
    into start, at_queue, at_key from redrive.chores c where c.name = 'unpark';
    -- A key is free if its job is no longer claimed.
    -- Not `not in`: each key would be searched in all claims if the planner expects many.
    delete from redrive.running_keys r
    where r.job = any (array(
        with taken as materialized (
            select o.job from redrive.running_keys o
            where o.job > 0 and o.ctid >= ('(' || start || ',0)')::tid
              and o.ctid < ('(' || start + blocks || ',0)')::tid)
        (select t.job from taken t
         except
         select c.id from redrive.claims k, unnest(k.ids) as c(id)
         where k.id >= redrive.claims_from_v1(null))
        union all
        select t.job from taken t
        where not exists (select from redrive.jobs j where j.id = t.job)));
    -- A key that nobody has used for an hour is hot no longer.
    with idle as materialized (
        select h.queue, h.ordering_key, h.generation from redrive.hot_keys h
        where h.moved_at < clock_timestamp() - interval '1 hour'
          and h.ctid >= ('(' || start || ',0)')::tid
          and h.ctid < ('(' || start + blocks || ',0)')::tid
        for update skip locked),
    cold as (
        delete from redrive.hot_keys h using idle i
        where h.queue = i.queue and h.ordering_key = i.ordering_key
          and not exists (select from redrive.running_keys r
                          where r.queue = h.queue and r.ordering_key = h.ordering_key
                            and r.generation = h.generation)
        returning h.queue, h.ordering_key)
    delete from redrive.running_keys r using cold c
    where r.queue = c.queue and r.ordering_key = c.ordering_key and r.generation = 0;
    entries := redrive.read_of_keys_v1();
    for step in 1 .. keys loop
        exit when redrive.read_of_keys_v1() - entries > most;
        select h.queue, h.ordering_key, h.jobs_from into hot from redrive.hot_keys h
        where (h.queue, h.ordering_key) > (at_queue, at_key)
        order by h.queue, h.ordering_key limit 1;
        select n.queue, n.ordering_key, n.id, n.run_at into head
        from (
            (select j.queue, j.ordering_key, j.id, j.run_at from redrive.jobs j
             where hot.queue is null and j.ordering_key is not null
               and (j.queue, j.ordering_key) > (at_queue, at_key)
             order by j.queue, j.ordering_key, j.id limit 1)
            union all
            (select j.queue, j.ordering_key, j.id, j.run_at from redrive.jobs j
             where hot.queue > at_queue and j.queue = at_queue and j.ordering_key > at_key
             order by j.ordering_key, j.id limit 1)
            union all
            (select j.queue, j.ordering_key, j.id, j.run_at from redrive.jobs j
             where j.queue > at_queue and j.queue < hot.queue and j.ordering_key is not null
             order by j.queue, j.ordering_key, j.id limit 1)
            union all
            (select j.queue, j.ordering_key, j.id, j.run_at from redrive.jobs j
             where j.queue = hot.queue and j.ordering_key < hot.ordering_key
               and j.ordering_key > case when hot.queue = at_queue then at_key else '' end
             order by j.ordering_key, j.id limit 1)
            union all
            (select j.queue, j.ordering_key, j.id, j.run_at from redrive.jobs j
             where j.queue = hot.queue and j.ordering_key <= hot.ordering_key
               and (j.ordering_key, j.id) >= (hot.ordering_key, hot.jobs_from)
             order by j.ordering_key, j.id limit 1)
            limit 1) n;
        at_queue := coalesce(head.queue, hot.queue);
        at_key := coalesce(head.ordering_key, hot.ordering_key);
        exit when at_queue is null;
        if head.run_at = 'infinity' then
            update redrive.jobs j set run_at = clock_timestamp(), lane = least(j.lane, ~j.lane)
            where j.id = (select o.id from redrive.jobs o where o.id = head.id
                          for update skip locked)
              and j.run_at = 'infinity'
              -- a redriven first job may be older than the job of its key that runs now
              and not exists (select from redrive.running_keys r
                              where r.queue = head.queue and r.ordering_key = head.ordering_key
                                and r.generation = coalesce((
                                    select k.generation from redrive.hot_keys k
                                    where k.queue = head.queue
                                      and k.ordering_key = head.ordering_key), 0))
              and not redrive.is_key_held_v1(head.queue, head.ordering_key, head.id)
              and not exists (select from redrive.limit_waits w where w.job = head.id);
            woken := woken + found::int;
        end if;
    end loop;
    start := case when start + blocks < size then start + blocks else 0 end;
    update redrive.chores c set last_key = array[at_queue, at_key], place = start
    where c.name = 'unpark'
      and (c.last_key, c.place) is distinct from (array[at_queue, at_key], start);
    if woken > 0 then
        perform redrive.tell_v1(65535);
    end if;
    return woken;
end
$$;

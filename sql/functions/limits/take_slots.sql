-- take_slots: choose the jobs of a claim that have room under all of their limits.
-- These jobs get their slots. The others wait for their first limit that has no room.
-- in:    ids, in the order in which the jobs should run
-- out:   the ids of the jobs that may run
-- locks: the keys of all their names, sorted: see lock_limits. A transaction that holds keys ends
--        without waiting for another key. So a claim takes slots only once, and not for a second
--        lane. Jobs, skip locked
-- A limit whose key another session keeps locked has no room. A job whose row is locked stays as it
-- is, and a later claim from the start finds it again.
-- The slots of a name are counted from its first one. If that meets many ended ones, because an open
-- snapshot keeps them, the place of the first one moves on: see advance_slots.
-- A slot is written by the transaction of its claim, whose commit then waits for the disk. If a
-- crash lost the claim of a running job, one job too many would run.
create or replace function redrive.take_slots_v1(ids bigint[]) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    limited text[];        -- their limited names, sorted, each once
    pair_jobs bigint[];    -- each job with each of these names, in order of the jobs
    pair_names int[];      -- as the number of the name
    ours text[];           -- of these names, the ones that we have locked
    entries bigint;        -- of the index of slots, which this transaction has read
    used int;              -- of these, slots that are taken
    rooms int[];           -- how many jobs may begin under each name
    counts int[];          -- how many of these jobs do
    next record;
    number int;
    full_name int;         -- the first name of a job that has no room
    taken bigint[] := '{}';
    slot_names text[] := '{}';
    slot_jobs bigint[] := '{}';
    parked bigint[] := '{}';
    behind text[] := '{}';
    unresolved bigint[];   -- jobs that may have names and have not been checked
    free bigint[];         -- jobs whose rows no other session has locked
    aside bigint[] := '{}';   -- the others
begin
    -- 1. Give jobs without limits of their own the limits of their kind.
    unresolved := array(
        select j.id from redrive.jobs j
        where j.id = any (ids) and j.limits is null
          and exists (select from redrive.kind_limits k
                      where redrive.handles_v1(array[k.kind], j.kind)));
    if cardinality(unresolved) > 0 then
        free := array(select j.id from redrive.jobs j where j.id = any (unresolved)
                      order by j.id for no key update skip locked);
        perform redrive.resolve_limits_v1(free);
        aside := array(select u.id from unnest(unresolved) as u(id)
                       where u.id not in (select f.id from unnest(free) as f(id)));
    end if;

    -- 2. List each job with each of its limited names. Return at once if there are none.
    with pairs as materialized (
        select v.id, v.place, n.name
        from unnest(ids) with ordinality as v(id, place)
        cross join lateral (select j.limits from redrive.jobs j where j.id = v.id offset 0) j
        cross join lateral unnest(j.limits) as n(name)),
    named as materialized (
        select n.name, row_number() over (order by n.name)::int as number
        from (select distinct p.name from pairs p) n
        where exists (select from redrive.limit_of_v1(n.name))),
    -- Not a join: planned for few, it would compare each name with each other one.
    numbered as (
        select p.id, p.place, dense_rank() over (order by p.name)::int as number
        from pairs p where (p.name in (select n.name from named n)) is true)
    select array_agg(p.id order by p.place, p.number), array_agg(p.number order by p.place, p.number),
           (select array_agg(o.name order by o.number) from named o)
    into pair_jobs, pair_names, limited
    from numbered p;
    if limited is null then
        return array(select v.id from unnest(ids) with ordinality as v(id, place)
                     where v.id not in (select a.id from unnest(aside) as a(id)) order by v.place);
    end if;

    -- 3. Lock the keys of these limits, and read how much room each has.
    ours := redrive.lock_limits_v1(limited);
    entries := pg_stat_get_xact_tuples_returned('redrive.limit_slots_name_idx'::regclass);
    -- Only now, with a new snapshot, which shows the slots that others took before us.
    select array_agg(case when r.name not in (select o.name from unnest(ours) as o(name)) then 0
                          -- null: the limit was removed just now
                          else coalesce(r.room, 2147483647) end order by r.number),
           sum(r.used)
    into rooms, used
    from redrive.limit_rooms_v1(limited) r;
    entries := pg_stat_get_xact_tuples_returned('redrive.limit_slots_name_idx'::regclass) - entries;
    counts := array_fill(0, array[cardinality(limited)]);

    -- 4. Take the jobs that have room under all of their limits, one after the other.
    for next in
        select p.job, array_agg(p.name order by p.name) as names
        from unnest(pair_jobs, pair_names) with ordinality as p(job, name, place)
        group by p.job order by min(p.place)
    loop
        full_name := null;
        foreach number in array next.names loop
            if rooms[number] - counts[number] < 1 then
                full_name := coalesce(full_name, number);
            end if;
        end loop;
        if full_name is not null then
            parked := parked || next.job;
            behind := behind || limited[full_name];
            continue;
        end if;
        taken := taken || next.job;
        foreach number in array next.names loop
            counts[number] := counts[number] + 1;
            slot_names := slot_names || limited[number];
            slot_jobs := slot_jobs || next.job;
        end loop;
    end loop;

    -- 5. Write the slots of these jobs, and use up the rates of their limits.
    if cardinality(taken) > 0 then
        perform set_config('synchronous_commit', 'on', true);
        insert into redrive.limit_slots (name, job)
        select p.name, p.job from unnest(slot_names, slot_jobs) as p(name, job)
        on conflict do nothing;
        perform redrive.set_pace_v1(
            n.name, redrive.next_at_v1(coalesce(p.next_at, '2000-01-01 UTC'), l.rate, l.burst, n.n,
                                       clock_timestamp()), null)
        from unnest(limited, counts) as n(name, n)
        cross join lateral redrive.limit_of_v1(n.name) l
        left join lateral redrive.pace_v1(n.name) p on true
        where n.n > 0 and l.rate is not null;
    end if;
    if entries > 2 * used + 200 then
        perform redrive.advance_slots_v1(ours);
    end if;

    -- 6. Park the jobs without room behind their first limit that has none.
    if cardinality(parked) > 0 then
        free := array(select j.id from redrive.jobs j where j.id = any (parked)
                      order by j.id for no key update skip locked);
        perform redrive.park_v1(array_agg(p.id), array_agg(p.name))
        from unnest(parked, behind) as p(id, name)
        where (p.id in (select f.id from unnest(free) as f(id))) is true;
        aside := aside || parked;
    end if;

    -- 7. Wake jobs that wait for a rate, each for its time.
    for next in
        with awaited as materialized (select w.name from redrive.waited_for_v1(ours) w(name))
        select r.name, r.slots
        from redrive.limit_rooms_v1(array(select a.name from awaited a)) r
        where r.rate is not null order by r.name
    loop
        perform redrive.wake_v1(next.name, next.slots, true);
    end loop;

    -- 8. Return the jobs that may run, in the order given.
    return array(select v.id from unnest(ids) with ordinality as v(id, place)
                 where v.id not in (select a.id from unnest(aside) as a(id)) order by v.place);
end
$$;

-- take_slots: choose the jobs of a claim that have room under all of their limits.
-- These jobs get their slots. The others wait for their first limit that has no room.
-- in:    ids, in the order in which the jobs should run
-- out:   the ids of the jobs that may run
-- locks: the keys of all their names, sorted: see lock_limits. A transaction that holds keys ends
--        without waiting for another key. So a claim takes slots only once, and not for a second
--        lane. Jobs, skip locked
-- A limit whose key another session keeps locked has no room. A job whose row is locked stays as it
-- is, and a later claim from the start finds it again.
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
    pair_jobs bigint[];    -- each job with each of its limited names
    names text[];
    places int[];
    every_job bigint[];
    every_name text[];
    limited text[];        -- these names, once
    rooms int[];           -- and how many jobs may begin under each
    won bigint[];
    lost bigint[];
    taken bigint[] := '{}';
    parked bigint[] := '{}';
    behind text[] := '{}';
    lost_to text[];
    at_name text;
    ours text[];           -- of these names, the ones that we have locked
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
        aside := array(select u.id from unnest(unresolved) as u(id) where u.id <> all (free));
    end if;

    -- 2. List each job with each of its limited names. Return at once if there are none.
    select array_agg(p.id order by p.place, p.name), array_agg(p.name order by p.place, p.name),
           array_agg(p.place order by p.place, p.name)
    into pair_jobs, names, places
    from (select j.id, n.name, v.place::int as place
          from unnest(ids) with ordinality as v(id, place)
          join redrive.jobs j on j.id = v.id
          cross join lateral unnest(j.limits) as n(name)
          where j.id = any (take_slots_v1.ids)
            and exists (select from redrive.limit_of_v1(n.name))) p;
    if pair_jobs is null then
        return array(select v.id from unnest(ids) with ordinality as v(id, place)
                     where v.id <> all (aside) order by v.place);
    end if;

    -- 3. Lock the keys of these limits, and read how much room each has.
    every_job := pair_jobs; every_name := names;
    limited := array(select distinct n.name from unnest(names) as n(name) order by 1);
    ours := redrive.lock_limits_v1(limited);
    -- Only now, with a new snapshot, which shows the slots that others took before us.
    rooms := array(select case when n.name = any (ours) then r.room else 0 end
                   from unnest(limited) with ordinality as n(name, i),
                   lateral redrive.limit_room_v1(n.name) r order by n.i);

    -- 4. Decide in rounds which jobs have room under all of their limits.
    while pair_jobs is not null loop
        -- A job that is behind one that must wait, and has room itself, is decided in the next
        -- round.
        with pairs as materialized (
            select p.job, p.name, p.place from unnest(pair_jobs, names, places) as p(job, name, place)),
        room as materialized (
            select r.name, r.room from unnest(limited, rooms) as r(name, room)),
        without as materialized (
            select p.job, min(p.name) as name from pairs p join room r on r.name = p.name
            where r.room < 1 group by p.job),
        counted as (
            select p.job, r.room, row_number() over (partition by p.name order by p.place) as nth
            from pairs p join room r on r.name = p.name
            where p.job not in (select w.job from without w)),
        within as materialized (
            select c.job from counted c group by c.job
            -- null: its limit was removed just now
            having bool_and(c.room is null or c.nth <= c.room)),
        rest as materialized (
            select p.* from pairs p
            where p.job not in (select w.job from within w)
              and p.job not in (select w.job from without w))
        select (select array_agg(w.job) from within w),
               (select array_agg(w.job order by w.job) from without w),
               (select array_agg(w.name order by w.job) from without w),
               array(select r.room - (select count(*) from pairs p
                                      where p.name = r.name
                                        and p.job in (select w.job from within w))
                     from room r order by array_position(limited, r.name)),
               (select array_agg(r.job order by r.place, r.name) from rest r),
               (select array_agg(r.name order by r.place, r.name) from rest r),
               (select array_agg(r.place order by r.place, r.name) from rest r)
        into won, lost, lost_to, rooms, pair_jobs, names, places;
        taken := taken || coalesce(won, '{}');
        parked := parked || coalesce(lost, '{}');
        behind := behind || coalesce(lost_to, '{}');
    end loop;

    -- 5. Write the slots of these jobs, and use up the rates of their limits.
    if cardinality(taken) > 0 then
        perform set_config('synchronous_commit', 'on', true);
        insert into redrive.limit_slots (name, job)
        select p.name, p.job from unnest(every_name, every_job) as p(name, job)
        where p.job = any (taken)
        on conflict do nothing;
        update redrive.limit_keys k
        set next_at = redrive.next_at_v1(k.next_at, l.rate, l.burst, n.n, clock_timestamp())
        from (select p.name, count(*)::int as n from unnest(every_name, every_job) as p(name, job)
              where p.job = any (taken) group by p.name) n
        cross join lateral redrive.limit_of_v1(n.name) l
        where k.name = n.name and l.rate is not null;
    end if;

    -- 6. Park the jobs without room behind their first limit that has none.
    if cardinality(parked) > 0 then
        free := array(select j.id from redrive.jobs j where j.id = any (parked)
                      order by j.id for no key update skip locked);
        perform redrive.park_v1(array_agg(p.id), array_agg(p.name))
        from unnest(parked, behind) as p(id, name) where p.id = any (free);
        aside := aside || parked;
    end if;

    -- 7. Wake jobs that wait for a rate, each for its time.
    foreach at_name in array ours loop
        perform redrive.wake_v1(at_name, r.slots, true)
        from redrive.limit_room_v1(at_name) r where r.rate is not null;
    end loop;

    -- 8. Return the jobs that may run, in the order given.
    return array(select v.id from unnest(ids) with ordinality as v(id, place)
                 where v.id <> all (aside) order by v.place);
end
$$;

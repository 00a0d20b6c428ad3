-- claim: list up to `want` due jobs in claims of worker `me`, lane by lane in the order given.
-- The rows of the jobs do not change. A few small jobs are returned at once. The others are read by
-- claimed_v1 in another transaction. So a worker that stops while it receives a long answer holds
-- no lane.
-- in:    parallel arrays, one element for each lane: queues, priorities, lanes
--        floors, floor_ids: the place after which the scan of each lane starts
--        seen: the newest claim that the worker knew when it noted that place
--        from_start: read from the beginning, for jobs that became visible behind these places;
--        null: only the lanes that no worker with these kinds has read so for a while
--        patience: milliseconds to wait for a lane, if other workers claim from each lane that has
--        jobs
-- out:   one row for each lane that had something due: the lane's number, from 1; the claim and how
--        many jobs it lists, or null and 0 if it takes none of them; and the place up to which
--        the lane has been claimed, as of claim `seen`. The place is null while another worker
--        claims from the lane. A lane that was waited for gets a second row. A lane with jobs that
--        are left to the next claim gets a second row without a place
--        one row without a lane if all visible jobs that were due by `upto` were looked at
--        the jobs without a lane, as claimed_v1 reads them, if they are few and small
-- locks: the row of the lane, skip locked, and the worker's row for key share. A claim that waits
--        for a lane holds no other. Jobs, skip locked, if another session holds jobs of the lane:
--        see hold_waiting
-- plan:  jobs_due_idx, claims_lane_idx
-- steps: for each lane with due jobs: 1. the worker (once) 2. the lane 3. the start 4. due jobs
--        5. jobs held by others 6. ordering keys 7. limits 8. the claim
--        after the last lane: 9. the end of the scan 10. a busy lane 11. small jobs
--        step 4 fills the arrays of jobs, and steps 5 to 7 leave out some
-- The commit does not wait for the disk. If a crash loses a claim, its jobs are claimed again, and
-- the workers that had the jobs no longer own a claim. The epoch makes sure that the id of the lost
-- claim is not used again, and that no place is trusted that depends on it.
create or replace function redrive.claim_v1(
    me int, queues text[], priorities smallint[], lanes smallint[], floors timestamptz[],
    floor_ids bigint[], seen bigint[], from_start boolean, want int, patience int default 0)
returns table (lane_no int, jobs int, upto timestamptz, upto_id bigint, as_of bigint, claim bigint,
               id bigint, deliveries int, attempt int, kind text, payload text, rest text,
               run_at timestamptz, created float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A queue is empty most of the time, so this is planned for an empty table. The plan must not be a
-- Seq Scan: without these settings a claim took 8 s when the same session met a million rows.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    -- the worker
    mine text[];           -- its kinds
    prefixes text[];       -- those that end in a star, as patterns
    is_known boolean := false;             -- step 1 is done
    since bigint;          -- the first claim id of the epoch
    start bigint;          -- no live claim has a lower id
    limited text[];        -- kinds with a limit, as patterns
    -- the lane
    is_full_scan boolean;  -- read it from its beginning
    is_empty boolean;      -- nothing is due after its place
    began timestamptz;     -- when it was locked
    is_unheld boolean;     -- no other session holds a job of it
    newest record;         -- its newest claim, and whether all workers have the same kinds
    others bigint[];       -- its jobs, behind or beside its start, that are claimed already
    -- its jobs that may be claimed, in parallel arrays
    ids bigint[];
    kinds text[];
    run_ats timestamptz[];
    keys text[];           -- not after step 6
    is_any_ordered boolean;
    is_any_limited boolean;
    is_cut boolean;        -- some of them are left to the next claim
    part int;              -- how many of them are searched for the first one of these
    entries bigint;        -- of the indexes of ordering keys, which this transaction has read
    hot text[];            -- keys with a row in hot_keys that we have locked
    free bigint[];         -- those that no other session holds
    taken bigint[];        -- those that got a slot of their limits
    -- the whole call
    recent constant interval := '3 seconds';  -- longer than most transactions that put jobs back
    late constant interval := '10 seconds';  -- LATE_COMMIT of a worker
    due timestamptz := clock_timestamp();  -- not now(): a claim that waited for a lane began before
    left_to_claim int := want;
    looked_at_all boolean := true;
    busy int;              -- the first lane that another worker claims from
    claimed int := 0;      -- number of jobs
    size bigint := 0;      -- of their payloads, as stored
    first bigint;          -- the first claim of this call
    off text;              -- the result of set_config, unused
begin
    -- For each lane that has a due job after its place, and whose queue is not paused. The newest
    -- claim of the lane may be further than the worker, which would otherwise read all jobs that
    -- others have completed since. In a front lane, the job may be a little before the place: see
    -- step 2. Also for an empty front lane with an old place: there, a backlog
    -- of another lane may keep the worker from learning that all due jobs were looked at.
    for lane_no, is_full_scan, is_empty in
        select l.no, l.is_full_scan, e.is_empty
        from (
            select l.*, coalesce(from_start, not exists (
                select from (
                    select s.next_at, s.kinds from redrive.full_scans s
                    where s.queue = l.queue and s.priority = l.priority and s.lane = l.lane
                    order by s.n desc limit 1) s, redrive.workers w
                -- far in the future: the clock went back
                where s.next_at > due and s.next_at < due + interval '5 minutes'
                  and w.id = me and s.kinds is not distinct from w.kinds)) as is_full_scan
            from unnest(queues, priorities, lanes, floors, floor_ids, seen) with ordinality
                as l(queue, priority, lane, floor, floor_id, seen, no)
            offset 0) l
        left join lateral (
            select k.upto, k.upto_id from redrive.claims k
            where k.queue = l.queue and k.priority = l.priority and k.lane = l.lane
              and k.id > l.seen and not l.is_full_scan
              and k.kinds is not distinct from (
                  select w.kinds from redrive.workers w where w.id = me)
            order by k.id desc limit 1) k on true
        cross join lateral (
            select case when l.is_full_scan then '-infinity'
                        when (k.upto, k.upto_id) > (l.floor, l.floor_id) then k.upto
                        else l.floor end as upto) p
        cross join lateral (select not exists (
            select from redrive.jobs j
            where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
              and (j.run_at, j.id) > (
                  case when l.lane < 0
                       then least(p.upto, greatest(p.upto - recent, due - late))
                       else p.upto end,
                  case when (k.upto, k.upto_id) > (l.floor, l.floor_id) then k.upto_id
                       else l.floor_id end)
              and j.run_at <= due
            offset 0)  -- not a join: planned for an empty table, it would read all jobs
            as is_empty offset 0) e
        where (not e.is_empty or l.lane < 0 and l.floor < due - 6 * late)
          and not exists (
            select from redrive.queues q
            where q.queue = l.queue and q.paused_at is not null
            offset 0)
        order by l.no
    loop
        if is_empty then
            claim := null; jobs := 0; upto := due - late; upto_id := 0; as_of := seen[lane_no];
            return next;
            continue;
        end if;

        -- 1. The worker. Once: check that it may claim, read its kinds and the epoch.
        if not is_known then
            -- Held until commit. A rescue that declares this worker lost either came before and is
            -- seen here, or it comes after and finds the claim.
            select w.kinds, e.since, coalesce(e.claims_from, 0),
                   set_config('synchronous_commit', 'off', true), (
                select array_agg(replace(replace(k.kind, '_', '\_'), '*', '%'))
                from redrive.kind_limits k)
            into mine, since, start, off, limited
            from redrive.workers w left join redrive.epoch e on true
            where w.id = me and w.lost_at is null and not w.is_closed for key share of w;
            if not found then
                return;
            end if;
            if strpos(mine::text, '*') > 0 then
                prefixes := array(
                    select replace(replace(left(k.kind, -1), '_', '\_'), '%', '\%') || '%'
                    from unnest(mine) as k(kind) where right(k.kind, 1) = '*');
            end if;
            since := coalesce(since, redrive.begin_epoch_v1());
            if since > any (seen) and 0 < any (seen) then
                from_start := true;
                floor_ids := array_fill(0, array[cardinality(seen)]);
                seen := floor_ids;
                floors := array_fill('1970-01-01 UTC'::timestamptz, array[cardinality(seen)]);
            end if;
            is_known := true;
        end if;
        is_full_scan := is_full_scan or coalesce(from_start, false);  -- a new epoch
        claim := null; jobs := 0; upto := null; upto_id := null; as_of := null;

        -- 2. The lane. Lock it, or leave it to the worker that has it.
        perform from redrive.lanes l
        where l.queue = queues[lane_no] and l.priority = priorities[lane_no]
          and l.lane = lanes[lane_no]
        for update skip locked;
        if not found then
            perform where case when not exists (
                select from redrive.lanes l
                where l.queue = queues[lane_no] and l.priority = priorities[lane_no]
                  and l.lane = lanes[lane_no])
                then redrive.make_lane_v1(queues[lane_no], priorities[lane_no], lanes[lane_no]) end;
        end if;
        if not found then
            looked_at_all := false;
            busy := coalesce(busy, lane_no);
            return next;
            continue;
        end if;
        patience := 0;  -- a claim that holds a lane waits for no other lane
        began := clock_timestamp();
        -- Jobs come back in transactions of many. So some become visible behind the place of their
        -- front lane, which is read from its beginning as often as its cost allows.
        is_full_scan := is_full_scan or lanes[lane_no] < 0 and not exists (
            select from (
                select s.next_at, s.kinds from redrive.full_scans s
                where s.queue = queues[lane_no] and s.priority = priorities[lane_no]
                  and s.lane = lanes[lane_no]
                order by s.n desc limit 1) s
            where s.next_at > due and s.next_at < due + interval '5 minutes'
              and s.kinds is not distinct from mine);
        perform from redrive.lane_marks m
        where m.n = redrive.lane_mark_v2(queues[lane_no], priorities[lane_no], lanes[lane_no])
        for update skip locked;
        is_unheld := found;

        -- 3. The start. Find the place to start from, and the jobs that others hold behind it.
        -- Only after the lane is locked: a worker that has claimed from it was registered by then.
        -- The claims of a lane follow each other, so the newest one says up to where our kinds are
        -- claimed.
        upto := floors[lane_no]; upto_id := floor_ids[lane_no]; as_of := seen[lane_no];
        select k.id, k.upto, k.upto_id,
               not exists (select from redrive.workers w where w.kinds is distinct from mine)
                   as is_alone
        into newest
        from (select) one
        left join lateral (
            select k.id, k.upto, k.upto_id from redrive.claims k
            where k.queue = queues[lane_no] and k.priority = priorities[lane_no]
              and k.lane = lanes[lane_no] and k.id > seen[lane_no] and k.id >= start
              and k.kinds is not distinct from mine
            order by k.id desc limit 1) k on true;
        if (newest.upto, newest.upto_id) > (upto, upto_id) then
            upto := newest.upto; upto_id := newest.upto_id; as_of := newest.id;
        end if;
        others := null;
        if is_full_scan or not newest.is_alone then
            select coalesce(array_agg(c.id), '{}') into others
            from redrive.claims k, unnest(k.ids) as c(id)
            where k.queue = queues[lane_no] and k.priority = priorities[lane_no]
              and k.lane = lanes[lane_no] and k.id >= start
              and (is_full_scan or k.kinds is distinct from mine);
        end if;

        -- 4. Due jobs. Read them after that place.
        entries := pg_stat_get_xact_tuples_returned('redrive.jobs_ordering_active_idx'::regclass)
                   + pg_stat_get_xact_tuples_returned('redrive.running_keys_pkey'::regclass);
        select array_agg(d.id), array_agg(d.kind), array_agg(d.run_at), array_agg(d.ordering_key),
               bool_or(d.ordering_key is not null), size + coalesce(sum(d.bytes), 0),
               bool_or(d.limits is not null or d.kind like any (limited))
        into ids, kinds, run_ats, keys, is_any_ordered, size, is_any_limited
        from (
            select j.id, j.kind, j.run_at, j.ordering_key, pg_column_size(j.payload) as bytes,
                   j.limits
            from redrive.jobs j
            where j.queue = queues[lane_no] and j.priority = priorities[lane_no]
              and j.lane = lanes[lane_no]
              and (j.run_at, j.id) > (case when is_full_scan then '-infinity' else upto end,
                                      case when is_full_scan then 0 else upto_id end)
              and j.run_at <= due
              and (others is null or j.id not in (select c.id from unnest(others) as c(id)))
              -- null: the worker takes all kinds
              and (mine is null or j.kind = any (mine) or j.kind like any (prefixes)
                   or j.expires_at <= due)
              -- Claim one job of a key at a time, the oldest first. A job that was inserted before
              -- the others and committed after them was invisible to them and is not parked. It
              -- waits for the job that runs.
              and (j.ordering_key is null or (
                  not exists (
                      select from redrive.running_keys r
                      where r.queue = j.queue and r.ordering_key = j.ordering_key
                        and r.generation = coalesce((
                            select h.generation from redrive.hot_keys h
                            where h.queue = j.queue and h.ordering_key = j.ordering_key), 0))
                  and not exists (
                      select from redrive.jobs o
                      where o.queue = j.queue and o.ordering_key = j.ordering_key
                        and o.run_at < 'infinity' and o.id < j.id
                        and o.id >= coalesce((
                            select h.jobs_from from redrive.hot_keys h
                            where h.queue = j.queue and h.ordering_key = j.ordering_key), 0))
                  -- the job was not parked when a dead letter began to hold its key; see
                  -- is_key_held_v1
                  and not exists (
                      select from redrive.dead_letters d
                      where d.queue = j.queue and d.ordering_key = j.ordering_key
                        and d.id < j.id and d.holds_key and d.state = 'open')))
            order by j.run_at, j.id
            limit left_to_claim) d;
        looked_at_all := looked_at_all and coalesce(cardinality(ids), 0) < left_to_claim;

        -- A claim takes jobs under at most 100 limit names, because each name costs up to a
        -- millisecond. It leaves the first job under another name, and all after it, to the next
        -- claim. After a lane with limits, it leaves the first job with a limit or an ordering key,
        -- and all after it. A claim that holds the keys of limits waits for no other session, so that
        -- claims never wait in a circle.
        is_cut := false;
        if is_any_limited and cardinality(ids) > 100
           or taken is not null and (is_any_limited or is_any_ordered) then
            part := 200;
            loop
                jobs := (
                    select f.place - 1
                    from (
                        select n.name, min(d.place) as place, bool_or(j.limits is null) as is_open
                        from unnest(ids[:part], keys[:part]) with ordinality
                            as d(id, ordering_key, place)
                        cross join lateral (
                            select j.limits, j.kind from redrive.jobs j where j.id = d.id offset 0) j
                        cross join lateral unnest(case
                            when taken is not null and d.ordering_key is not null then array['']
                            when j.limits is not null then j.limits
                            -- take_slots gives it its names
                            when j.kind like any (limited) then array[d.id::text] end) as n(name)
                        group by n.name order by 2) f
                    where (taken is not null or f.is_open and exists (select from redrive.limits)
                           or exists (select from redrive.limit_of_v1(f.name)))
                    offset case when taken is null then 100 else 0 end limit 1);
                exit when jobs is not null or part >= cardinality(ids);
                part := 4 * part;
            end loop;
            is_cut := jobs is not null;
        end if;
        if is_cut then
            ids := ids[:jobs]; kinds := kinds[:jobs]; run_ats := run_ats[:jobs];
            keys := keys[:jobs];
            is_any_ordered := is_any_ordered and taken is null;
            is_any_limited := taken is null;
            looked_at_all := false;
        end if;

        -- 5. Jobs held by others. Leave out what another session has locked.
        if not is_unheld and cardinality(ids) > 0 then
            -- A later read from the start finds these jobs again.
            free := array(
                select j.id from redrive.jobs j
                where j.id = any (ids) and j.run_at <= due
                order by j.id for no key update skip locked);
            select array_agg(d.id order by d.place), array_agg(d.kind order by d.place),
                   array_agg(d.run_at order by d.place), array_agg(d.ordering_key order by d.place)
            into ids, kinds, run_ats, keys
            from unnest(ids, kinds, run_ats, keys) with ordinality
                as d(id, kind, run_at, ordering_key, place)
            where d.id = any (free);
        end if;

        -- 6. Ordering keys. Keep one job of each.
        if is_any_ordered then
            -- A claim of a hot key locks its row, so the generation stays as it is.
            hot := array(
                select h.ordering_key from redrive.hot_keys h
                where h.queue = queues[lane_no] and h.ordering_key = any (keys)
                order by h.ordering_key for update skip locked);
            -- If two claims take jobs of one key from two lanes at once, one finds the key taken
            -- here.
            with keyed as (
                insert into redrive.running_keys (queue, ordering_key, job, generation)
                select queues[lane_no], d.ordering_key, d.id, coalesce(h.generation, 0)
                from unnest(ids, keys) as d(id, ordering_key)
                left join redrive.hot_keys h
                       on h.queue = queues[lane_no] and h.ordering_key = d.ordering_key
                where d.ordering_key is not null
                  and (h.ordering_key is null or h.ordering_key = any (hot))
                order by d.ordering_key
                on conflict do nothing
                returning job)
            select array_agg(d.id order by d.place), array_agg(d.kind order by d.place),
                   array_agg(d.run_at order by d.place)
            into ids, kinds, run_ats
            from unnest(ids, kinds, run_ats, keys) with ordinality
                as d(id, kind, run_at, ordering_key, place)
            where d.ordering_key is null or d.id in (select k.job from keyed k);
            entries := pg_stat_get_xact_tuples_returned('redrive.jobs_ordering_active_idx'::regclass)
                       + pg_stat_get_xact_tuples_returned('redrive.running_keys_pkey'::regclass)
                       - entries;
            if entries > 4 * coalesce(cardinality(ids), 0) + 200
               -- parked jobs that were cancelled: only the end of a job meets their rows
               or random() < 0.02 then
                perform redrive.advance_keys_v1(queues[lane_no], ids);
            end if;
        end if;

        -- 7. Limits. Keep the jobs whose limits have room.
        if is_any_limited and cardinality(ids) > 0 then
            -- Jobs without a free slot wait in limit_waits, so the place moves past them, too.
            jobs := cardinality(ids);
            if (run_ats[jobs], ids[jobs]) > (upto, upto_id) then
                upto := run_ats[jobs]; upto_id := ids[jobs];
            end if;
            taken := redrive.take_slots_v1(ids);
            select array_agg(d.id order by d.place), array_agg(d.kind order by d.place),
                   array_agg(d.run_at order by d.place)
            into ids, kinds, run_ats
            from unnest(ids, kinds, run_ats) with ordinality as d(id, kind, run_at, place)
            where (d.id in (select t.id from unnest(taken) as t(id))) is true;
        end if;

        -- 8. The claim. Write it, count its jobs, and return the row of the lane.
        jobs := coalesce(cardinality(ids), 0);
        if jobs > 0 then
            if (run_ats[jobs], ids[jobs]) > (upto, upto_id) then
                upto := run_ats[jobs]; upto_id := ids[jobs];
            end if;
            with counted as (
                insert into redrive.deltas (queue, kind, event, n)
                select queues[lane_no], k.kind, 'claimed', count(*)
                from unnest(kinds) as k(kind) group by k.kind)
            insert into redrive.claims as k (
                worker, queue, priority, lane, upto, upto_id, kinds, ids)
            values (me, queues[lane_no], priorities[lane_no], lanes[lane_no], upto, upto_id, mine,
                    ids)
            returning k.id into claim;
            as_of := claim;
            first := coalesce(first, claim);
            claimed := claimed + jobs;
            left_to_claim := left_to_claim - jobs;
        elsif is_unheld and not is_cut and upto < due - late then
            -- Its due jobs are not for this worker. Do not read them again before the next full
            -- scan, as if all lanes had been looked at.
            upto := due - late; upto_id := 0;
        end if;
        if is_full_scan then
            -- As sweep_pause of a worker, but for all workers of these kinds together. If all jobs
            -- were behind the place, there are probably more.
            perform redrive.set_full_scan_v1(
                queues[lane_no], priorities[lane_no], lanes[lane_no], mine, case
                    when (is_cut or left_to_claim = 0) and (run_ats[jobs], ids[jobs]) < (upto, upto_id)
                    then '-infinity'
                    else clock_timestamp() + greatest(
                        interval '0.2 seconds', 20 * (clock_timestamp() - began),
                        least(200 * (clock_timestamp() - began), interval '5 seconds')) end);
        end if;
        return next;
        if is_cut then
            claim := null; jobs := 0; upto := null; upto_id := null; as_of := null;
            return next;
        end if;
        exit when left_to_claim = 0;
    end loop;

    -- 9. The end of the scan. Report that all due jobs were looked at.
    if looked_at_all then
        lane_no := null; claim := null; jobs := 0; upto := now(); upto_id := 0; as_of := null;
        return next;
    end if;

    -- 10. A busy lane. Wait for it, and claim from it alone.
    if busy > 0 and patience > 0 and redrive.wait_for_lane_v1(
            queues[busy], priorities[busy], lanes[busy], patience) then
        lane_no := busy; upto := floors[busy]; upto_id := floor_ids[busy]; as_of := seen[busy];
        return next;
        -- each statement sees what was committed before it began
        return query
        select case when c.lane_no > 0 then busy end, c.jobs, c.upto, c.upto_id, c.as_of, c.claim,
               c.id, c.deliveries, c.attempt, c.kind, c.payload, c.rest, c.run_at, c.created
        from redrive.claim_v1(
            me, queues[busy:busy], priorities[busy:busy], lanes[busy:busy], floors[busy:busy],
            floor_ids[busy:busy], seen[busy:busy], from_start, want) c
        where c.lane_no > 0 or c.id > 0;
    end if;

    -- 11. Small jobs. Return the jobs themselves if they are few and small.
    if claimed between 1 and 8 and size < 4096 then
        return query
        select null::int, null::int, null::timestamptz, null::bigint, null::bigint, c.claim, c.id,
               c.deliveries, c.attempt, c.kind, c.payload::text, c.rest, c.run_at, c.created
        from redrive.claimed_v1(me, first - 1) c;
    end if;
end
$$;

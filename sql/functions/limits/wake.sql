-- wake: let the next jobs that wait for a limit try again, by priority and due time.
-- Under a rate they become due one after the other.
-- in:    n: how many at most; null: as many as one call wakes, which is 10,000
--        is_served: wake only jobs that a worker would run now
-- out:   how many were woken
-- locks: waits and jobs, skip locked; with a rate also the key, skip locked: the session that holds
--        the key wakes the jobs
-- plan:  limit_lines_name_idx, and limit_waits_line_idx from the first job of each line
-- If the search meets many jobs that were woken before, because an open snapshot keeps them, the places
-- of the lines move on. A job that becomes visible before such a place is found by tend_limits.
create or replace function redrive.wake_v1(name text, n int, is_served boolean) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    ahead constant interval := '3 s';      -- more than the time between two steps of tend_limits
    at constant timestamptz := clock_timestamp();
    most int := least(n, 10000);
    held record;
    first timestamptz := at;
    step interval := '0';
    picked bigint[];
    gone int;
    moved int;
    last timestamptz;
    told int;
    slots int := 0;
    woken int := 0;
    entries bigint;        -- of the index of waits, which this transaction has read
begin
    -- 1. Return at once if no job waits for this limit.
    if most < 1 or not exists (select from redrive.waited_for_v1(array[wake_v1.name])) then
        return 0;
    end if;

    -- 2. Under a rate, lock the key, and find the first time and how many jobs it has room for.
    select l.rate, l.burst, null::timestamptz as next_at, null::timestamptz as placed_at into held
    from redrive.limit_of_v1(wake_v1.name) l;
    if held.rate is not null then
        perform from redrive.limit_keys k where k.name = wake_v1.name for update skip locked;
        if not found then
            return 0;
        end if;
        select coalesce(p.next_at, '2000-01-01 UTC'), coalesce(p.placed_at, '2000-01-01 UTC')
        into held.next_at, held.placed_at
        from (select) one left join redrive.pace_v1(wake_v1.name) p on true;
        step := 1 / held.rate * interval '1 s';
        -- from before the clock was set back or the rate was raised: nothing could begin until then
        if held.next_at > at + held.burst * step then
            held.next_at := at + held.burst * step;
            perform redrive.set_pace_v1(wake_v1.name, held.next_at, null);
        end if;
        -- after the job that was woken last, unless the clock was set back since
        first := greatest(at, least(held.next_at - (held.burst - 1) * step, at + held.burst * step),
                          case when held.placed_at <= at + ahead + step
                               then held.placed_at + step end);
        most := least(most, case when held.placed_at <= at or held.placed_at > at + ahead + step
                                 then 1 else 0 end
                            + greatest(0, floor(extract(epoch from at + ahead - first) * held.rate)));
    end if;

    loop
        -- 3. Lock the next waits, by priority and due time.
        entries := pg_stat_get_xact_tuples_returned('redrive.limit_waits_line_idx'::regclass);
        with line as materialized (
            -- the one with the last place, if there are several
            select distinct on (l.queue, l.kind, l.priority) l.*
            from redrive.limit_lines l where l.name = wake_v1.name
            order by l.queue, l.kind, l.priority, l.due desc, l.job desc),
        served as materialized (
            select l.* from line l
            where not is_served
               or not exists (select from redrive.queues q
                              where q.queue = l.queue and q.paused_at is not null)
                  and exists (select from redrive.workers k
                              where k.lost_at is null and (k.queues is null or l.queue = any (k.queues))
                                and redrive.handles_v1(k.kinds, l.kind))),
        next as (
            select w.job, w.priority, w.due
            from served s, lateral (
                select w.job, w.priority, w.due from redrive.limit_waits w
                where w.name = wake_v1.name and w.queue = s.queue and w.kind = s.kind
                  and w.priority = s.priority and (w.due, w.job) >= (s.due, s.job)
                order by w.due, w.job limit most for update skip locked) w
            order by w.priority, w.due, w.job limit most)
        select array_agg(x.job order by x.priority, x.due, x.job) into picked from next x;
        if pg_stat_get_xact_tuples_returned('redrive.limit_waits_line_idx'::regclass) - entries
           > 2 * coalesce(cardinality(picked), 0) + 200 then
            perform redrive.advance_lines_v1(wake_v1.name);
        end if;
        exit when picked is null;

        -- 4. Make their jobs due, and delete their waits.
        with here as materialized (
            select j.id from redrive.jobs j
            where j.id = any (picked) and j.run_at = 'infinity' order by j.id for update skip locked),
        due as materialized (
            select h.id, first + (row_number() over (order by w.priority, w.due, w.job) - 1) * step
                       as run_at
            from here h join redrive.limit_waits w on w.job = h.id),
        -- a job that is locked, for example because an operator cancels it, keeps its place
        done as (
            delete from redrive.limit_waits w
            where w.job = any (picked)
              and (w.job in (select h.id from here h)
                   or not exists (select from redrive.jobs j
                                  where j.id = w.job and j.run_at = 'infinity'))
            returning w.job),
        moved as (
            update redrive.jobs j set run_at = d.run_at, lane = least(j.lane, ~j.lane)
            from due d where j.id = d.id
            returning j.queue, j.run_at)
        select (select count(*) from done), count(*), max(m.run_at), bit_or(redrive.wake_slot_v1(m.queue))
        into gone, moved, last, told from moved m;

        -- 5. Count them. Repeat if some of them no longer waited.
        woken := woken + moved;
        most := most - moved;
        slots := slots | coalesce(told, 0);
        if held.rate is not null and moved > 0 then
            perform redrive.set_pace_v1(wake_v1.name, null, last);
            first := last + step;
        end if;
        -- A job that no longer waits, because its ordering key woke it, has taken no turn.
        exit when gone = moved;
    end loop;

    -- 6. Notify the workers.
    if slots <> 0 then
        perform redrive.tell_v1(slots);
    end if;
    return woken;
end
$$;

-- beat: record a worker's heartbeat.
-- in:    parallel arrays: ids, jobs in flight, and the progress of those jobs (workers.progress)
-- out:   the ids that are alive; a missing id was declared lost
create or replace function redrive.beat_v1(ids int[], inflights int[], progress jsonb[])
returns setof int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    seen redrive.contact;
    heard_at interval;
begin
    select * into seen from redrive.contact;
    -- Beside many workers, another one has just advanced the clock. This is what it shows then.
    if clock_timestamp() between seen.at and seen.at + interval '0.2 s' then
        heard_at := seen.elapsed + (clock_timestamp() - seen.at);
    else
        perform redrive.advance_contact_v1();
        heard_at := redrive.contact_now_v1();
    end if;
    return query
    update redrive.workers w
    set seen_at = clock_timestamp(), heard = heard_at, inflight = b.inflight,
        progress = b.progress
    from unnest(ids, inflights, beat_v1.progress) as b(id, inflight, progress)
    where w.id = b.id and w.lost_at is null
    returning w.id;
end
$$;
-- beat_v2: record a worker's heartbeat, and return what it should know of the others.
-- in:    as beat_v1
-- out:   alive: the ids that are alive; a missing id was declared lost
--        others: the other workers that look for the same jobs
--        place: of the workers with the same version, kinds and queues, how many have a lower id.
--        The first few do the chores and listen for notifications
--        late: seconds since a worker last did the chore `rescue`
create or replace function redrive.beat_v2(
    ids int[], inflights int[], progress jsonb[],
    out alive int[], out others int, out place int, out late float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    alive := array(select b.id from redrive.beat_v1(ids, inflights, beat_v2.progress) b(id));
    select count(*) filter (where coalesce(o.queues && w.queues, true)),
           count(*) filter (where o.id < w.id and not o.is_closed and o.version = w.version
                            and (o.kinds, o.queues) is not distinct from (w.kinds, w.queues))
    into others, place
    from (select n.* from redrive.workers n where n.id = any (alive)
          order by n.started_at desc limit 1) w
    join redrive.workers o on o.id <> all (ids) and o.lost_at is null;
    -- infinite: it never began
    select case when isfinite(c.ran_at) then extract(epoch from clock_timestamp() - c.ran_at)
                else 'infinity' end
    into late
    from redrive.chores c where c.name = 'rescue';
end
$$;

-- record_minute: record a minute, and each hour that is over with it.
-- The counts of a minute are what the tallies have grown by since the last record. After a pause
-- in which nobody called this, they cover all minutes of the pause, and the row of the queue ''
-- says how many.
-- A pair of queue and kind has a row of its own if it already has one in this hour, or if it is
-- among the busiest that still have room. All others are added up as 'other'. The queue or kind ''
-- stands for all: these rows are the sums by kind, by queue, and of everything.
-- in:    this: the minute that has just ended, in minutes since 1970
-- out:   whether this call has recorded it
-- locks: the rows of two chores, skip locked. With the row of `fold`, no tally changes meanwhile
-- plan:  series_pkey, queue_series_pkey
create or replace function redrive.record_minute_v1(this bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    most_pairs constant int := 200;
    most_queues constant int := 100;
    most_sent constant int := 50000;   -- the rest counts in the next minute
    minute constant timestamptz := to_timestamp(this * 60);
    hour constant timestamptz := redrive.series_hour_v1(this - 1);
    last bigint;
begin
    select c.place into last from redrive.chores c
    where c.name = 'series' and c.place <> this for update skip locked;
    if not found then
        return false;
    end if;
    perform from redrive.chores c where c.name = 'fold' for update skip locked;
    if not found then
        return false;
    end if;
    -- 1. Delete what a clock that was ahead has left.
    delete from redrive.series s where s.span = 1 and s.at >= minute;
    delete from redrive.series s where s.span = 60 and s.at >= hour;
    delete from redrive.queue_series s where s.span = 1 and s.at >= minute;
    delete from redrive.queue_series s where s.span = 60 and s.at >= hour;

    -- 2. Record what the queues hold.
    with alive as materialized (
        select w.queues from redrive.workers w
        where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)),
    depth as materialized (
        select d.queue, d.ready, d.running from redrive.depths_v1() d)
    insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)
    select 1, minute, '', case when last between 1 and this then this - last else 1 end,
           coalesce(sum(d.ready), 0), coalesce(sum(d.running), 0), (select count(*) from alive)
    from depth d
    union all
    (select 1, minute, d.queue, 1, d.ready, d.running,
            (select count(*) from alive a where a.queues is null or d.queue = any (a.queues))
     from depth d
     order by d.ready + d.running desc, d.queue limit most_queues);

    -- 3. Record what has happened.
    with grown as (
        update redrive.tallies t set counted = t.n
        where t.n <> t.counted and t.kind <> ''
          and t.event in ('enqueued', 'completed', 'retried', 'rescued', 'dead', 'redriven')
        returning 1),
    sent as (
        delete from redrive.series_deltas d
        where d.ctid = any (array(select o.ctid from redrive.series_deltas o
                                 limit most_sent for update skip locked))
        returning d.queue, d.kind, d.duration, d.wait),
    counted as (
        select t.queue, t.kind, t.event, t.n - t.counted as n from redrive.tallies t
        where t.n <> t.counted and t.kind <> ''
          and t.event in ('enqueued', 'completed', 'retried', 'rescued', 'dead', 'redriven')),
    raw as materialized (
        select c.queue, c.kind, c.event, c.n, null::int[] as duration, null::int[] as wait
        from counted c
        union all
        select s.queue, s.kind, 'sent', 0, s.duration, s.wait from sent s),
    before as materialized (
        select distinct s.queue, s.kind from redrive.series s
        where s.span = 1 and s.at >= hour and s.at < minute and s.queue <> '' and s.kind <> ''),
    placed as materialized (
        select r.queue, r.kind, b.kind is not null or row_number() over (
                   partition by b.kind is not null order by sum(r.n) desc, r.queue, r.kind)
                   <= most_pairs - (select count(*) from before) as is_own
        from raw r left join before b on b.queue = r.queue and b.kind = r.kind
        group by r.queue, r.kind, b.kind)
    insert into redrive.series (span, at, queue, kind, enqueued, completed, failed, retried, died,
                                redriven, duration, wait)
    select 1, minute, coalesce(n.queue, ''), coalesce(n.kind, ''),
           coalesce(sum(r.n) filter (where r.event = 'enqueued'), 0),
           coalesce(sum(r.n) filter (where r.event = 'completed'), 0),
           coalesce(sum(r.n) filter (where r.event in ('retried', 'rescued', 'dead')), 0),
           coalesce(sum(r.n) filter (where r.event = 'retried'), 0),
           coalesce(sum(r.n) filter (where r.event = 'dead'), 0),
           coalesce(sum(r.n) filter (where r.event = 'redriven'), 0),
           case when count(r.duration) > 0 then array[
               sum(r.duration[1]), sum(r.duration[2]), sum(r.duration[3]), sum(r.duration[4]),
               sum(r.duration[5]), sum(r.duration[6]), sum(r.duration[7]), sum(r.duration[8]),
               sum(r.duration[9]), sum(r.duration[10]), sum(r.duration[11]), sum(r.duration[12]),
               sum(r.duration[13]), sum(r.duration[14]), sum(r.duration[15]), sum(r.duration[16]),
               sum(r.duration[17])] end,
           case when count(r.wait) > 0 then array[
               sum(r.wait[1]), sum(r.wait[2]), sum(r.wait[3]), sum(r.wait[4]), sum(r.wait[5]),
               sum(r.wait[6]), sum(r.wait[7]), sum(r.wait[8]), sum(r.wait[9]), sum(r.wait[10]),
               sum(r.wait[11]), sum(r.wait[12]), sum(r.wait[13]), sum(r.wait[14]),
               sum(r.wait[15]), sum(r.wait[16]), sum(r.wait[17]), sum(r.wait[18])] end
    from raw r join placed p on p.queue = r.queue and p.kind = r.kind
    cross join lateral (
        select case when p.is_own then p.queue else 'other' end as queue,
               case when p.is_own then p.kind else 'other' end as kind) n
    group by grouping sets ((n.queue, n.kind), (n.queue), (n.kind), ())
    having count(*) > 0;

    -- 4. Add up the hours that are over.
    if last not between 1 and this then
        last := this - 1;
    end if;
    if redrive.series_hour_v1(last) < redrive.series_hour_v1(this) then
        perform redrive.fold_hours_v1(redrive.series_hour_v1(last), redrive.series_hour_v1(this));
    end if;
    perform redrive.forget_series_v1(5000);
    update redrive.chores c set place = this where c.name = 'series';
    return true;
end
$$;

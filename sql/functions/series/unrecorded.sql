-- unrecorded: count what has happened since the last minute was recorded.
-- With it, the counts of read_series are complete up to now, from the first second on.
-- It happened in the minute after the last recorded one. Before the first record, that is this one.
-- in:    as read_series; nothing is returned if that minute is not in the period
create or replace function redrive.unrecorded_v1(
    since timestamptz, until timestamptz, step interval, of_queue text, of_kind text,
    by_queue boolean, by_kind boolean)
returns table (at timestamptz, queue text, kind text, enqueued bigint, completed bigint,
               failed bigint, retried bigint, died bigint, redriven bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with latest as materialized (
        select date_trunc('minute', case when c.place > 0 then least(
                   to_timestamp((c.place + 1) * 60), clock_timestamp())
                   else clock_timestamp() end) as at
        from redrive.chores c where c.name = 'series')
    select date_bin(unrecorded_v1.step, l.at, timestamptz '2000-01-01 00:00:00+00'),
           case when by_queue then n.queue end, case when by_kind then n.kind end,
           coalesce(sum(n.n) filter (where n.event = 'enqueued'), 0)::bigint,
           coalesce(sum(n.n) filter (where n.event = 'completed'), 0)::bigint,
           coalesce(sum(n.n) filter (where n.event in ('retried', 'rescued', 'dead')), 0)::bigint,
           coalesce(sum(n.n) filter (where n.event = 'retried'), 0)::bigint,
           coalesce(sum(n.n) filter (where n.event = 'dead'), 0)::bigint,
           coalesce(sum(n.n) filter (where n.event = 'redriven'), 0)::bigint
    from (select t.queue, t.kind, t.event, t.n - t.counted as n
          from redrive.tallies t where t.n <> t.counted
          union all
          select d.queue, d.kind, d.event, d.n from redrive.deltas d) n
    cross join latest l
    where l.at >= unrecorded_v1.since and l.at < unrecorded_v1.until and n.kind <> ''
      and n.event in ('enqueued', 'completed', 'retried', 'rescued', 'dead', 'redriven')
      and (of_queue is null or n.queue = of_queue)
      and (of_kind is null or n.kind = of_kind)
    group by 1, 2, 3
$$;

-- forget_names: delete names that were unused for their retention: breakers, kinds and queues.
-- The counters of a kind are added to the counters of its queue, under the kind ''. A queue is
-- deleted if nothing else of it is left. A deleted name no longer counts towards the limit of names
-- (admit_names.sql).
-- in:    batch: how many kinds and how many queues at most
-- locks: breakers, skip locked: an operator may be forcing one. The chore that folds, skip locked:
--        a counter must not grow while it moves. The breakers stay locked until all is done. It waits
--        for nobody: only chores lock tallies, and producers only add names
-- The sums of a queue and its depths stay exact, because only finished counts move or are deleted.
create or replace function redrive.forget_names_v1(older_than interval, batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    before constant timestamptz := clock_timestamp() - older_than;
    breaker_count int;
    kind_count int;
    queue_count int;
begin
    -- otherwise an open breaker that no code asks about would stay open forever
    delete from redrive.breakers b
    where b.name in (
        select o.name from redrive.breakers o
        where o.forced_by is null
          and greatest(o.changed_at, o.window_at, o.open_until, o.probe_until) < before
        for update skip locked);
    get diagnostics breaker_count = row_count;
    perform from redrive.chores c where c.name = 'fold' for update skip locked;
    if not found then
        return breaker_count;
    end if;
    with old as materialized (
        select t.queue, t.kind from redrive.tallies t
        -- unfolded deltas would stay under their kind, and its sums would never be zero
        where t.kind <> '' and not exists (select from redrive.deltas d
                                           where d.queue = t.queue and d.kind = t.kind)
        group by t.queue, t.kind having max(t.at) < before),
    counted as materialized (
        select t.queue, t.kind, t.event, t.reason, t.n
        from redrive.totals t join old o on o.queue = t.queue and o.kind = t.kind),
    busy as materialized (
        select c.queue, c.kind from counted c group by c.queue, c.kind
        having sum(case when c.event in ('enqueued', 'redriven') then c.n
                        when c.event in ('completed', 'cancelled', 'dead') then -c.n
                        else 0 end) <> 0
        union
        -- dead letters are counted by reason, so each reason must be zero
        select c.queue, c.kind from counted c group by c.queue, c.kind, c.reason
        having sum(case when c.event in ('dead', 'imported', 'reopened') then c.n
                        when c.event in ('redriven', 'dismissed', 'purged') then -c.n
                        else 0 end) <> 0),
    pick as materialized (
        select queue, kind from old
        where (queue, kind) not in (select queue, kind from busy)
        limit batch),
    moved as (
        delete from redrive.tallies t using pick p
        where t.queue = p.queue and t.kind = p.kind
        returning t.queue, t.kind, t.event, t.reason, t.n, t.at),
    added as (
        insert into redrive.tallies as t (queue, kind, event, reason, n, at)
        select queue, '', event, reason, sum(n), max(at) from moved
        group by queue, event, reason order by queue, event, reason
        on conflict (queue, kind, event, reason)
            do update set n = t.n + excluded.n, at = greatest(t.at, excluded.at))
    select count(distinct (queue, kind)) into kind_count from moved;
    with pick as materialized (
        select t.queue from redrive.tallies t
        group by t.queue having max(t.at) < before and max(t.kind) = '' limit batch),
    gone as (
        delete from redrive.tallies t using pick p where t.queue = p.queue returning t.queue)
    select count(distinct queue) into queue_count from gone;
    delete from redrive.names n where n.ctid = any (array(
        select o.ctid from redrive.names o
        where o.at < before
          and (not exists (select from redrive.tallies t
                           where t.queue = o.queue and t.kind = o.kind)
               or o.priority <> 0 and not exists (
                   select from redrive.jobs j
                   where j.queue = o.queue and j.priority = o.priority))
        limit batch));
    return breaker_count + kind_count + queue_count;
end
$$;

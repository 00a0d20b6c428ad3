-- take_chores: return the chores that the caller should do now. Of the chores that are due, it takes
-- each, as take_chore does, and leaves out those for which there is surely nothing to do.
-- in:    parallel arrays: names, and the interval of each
-- locks: the rows of these chores, skip locked. The function fails after 0.1 s (55P03) if a whole
--        table is locked. Then the caller takes each chore by itself
-- plan:  each look is a descent of an index, or the blocks of a short table or index
create or replace function redrive.take_chores_v1(names text[], everys interval[])
returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    -- what is longer may hold dead rows only, which a snapshot keeps, so it is not searched
    few constant bigint := 16 * current_setting('block_size')::bigint;
begin
    return query
    with due as (
        select c.name from redrive.chores c
        join unnest(names, everys) as a(name, every) on a.name = c.name
        -- in the future: the server's clock was set back since
        where c.ran_at < clock_timestamp() - a.every or c.ran_at > clock_timestamp()
        for update of c skip locked),
    taken as (
        update redrive.chores c set ran_at = clock_timestamp() from due d
        where c.name = d.name
        returning c.name, c.place)
    select t.name from taken t
    where case t.name
        when 'fold' then redrive.has_deltas_v1()
        when 'regressions' then exists (select from redrive.groups g where g.is_unjudged)
        when 'sample' then not exists (
            select from redrive.samples s
            where s.minute = date_trunc('minute', clock_timestamp()) and s.queue = '')
        -- the minute that fold_series records
        when 'series' then t.place <> floor(
            extract(epoch from clock_timestamp() - interval '65 s') / 60)::bigint
        when 'unpark' then pg_relation_size('redrive.jobs_ordering_idx') > few
            or pg_relation_size('redrive.running_keys') > few
            or exists (select from redrive.running_keys)
            or exists (select from redrive.jobs j where j.ordering_key is not null)
        when 'cancel' then exists (select from redrive.cancellations)
        when 'batches' then pg_relation_size('redrive.batch_deltas') > few
            or exists (select from redrive.batch_deltas d where not d.is_folded)
            or exists (select from redrive.batches b
                       where b.closed_at is null and b.over_at is null
                         and b.close_by < clock_timestamp())
        when 'limits' then exists (select from redrive.limit_keys)
            or exists (select from redrive.limit_lines)
        when 'campaign' then exists (select from redrive.heals h where h.ended_at is null)
            or exists (select from redrive.live_campaigns_v1())
        when 'hold' then exists (select from redrive.held_groups)
            or exists (select from redrive.groups g
                       where g.fixed_in is not null and g.regressed_at is null
                         and redrive.is_failing_v1(g.fingerprint))
        when 'schedules' then exists (select from redrive.due_schedules_v1())
        when 'rescue' then exists (
            select from redrive.workers w
            where w.lost_at is not null
               or w.heard < (select redrive.contact_now_v1()) - coalesce(w.ttl, interval '1 s'))
            or exists (select from redrive.claims k where k.id >= redrive.claims_from_v1(null))
        else true end;
end
$$;

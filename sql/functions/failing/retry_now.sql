-- retry_now: make failing jobs of a campaign due that wait for their next attempt.
-- It does not check who owns the campaign. Its caller, step_campaign, does.
-- in:    ids; rate, first_turn: as redrive
-- out:   id, blocked: null if it is due, else not_waiting: it has ended, or is retried already
-- locks: the campaign, then jobs, ascending, skip locked: a locked job is being changed, so it is
--        left out
-- plan:  campaign_jobs_pkey, jobs_pkey
create or replace function redrive.retry_now_v1(
    ids bigint[], campaign bigint, rate float8, first_turn timestamptz)
returns table (id bigint, blocked text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    done bigint[];
    slots int;
begin
    -- Claims take only due jobs, so no worker has one of these.
    with asked as materialized (
        select v.id, to_timestamp(ceil(
                   (extract(epoch from first_turn)::float8 + (v.n - 1) / rate) * 10) / 10) as turn
        from unnest(ids) with ordinality as v(id, n)),
    pick as materialized (
        select j.id, a.turn from redrive.jobs j
        join asked a on a.id = j.id
        where j.id = any (ids) and j.failed_at is not null
          and j.run_at > clock_timestamp() and j.run_at < 'infinity'
        order by j.id for update of j skip locked),
    planned as (
        select p.id, p.turn from pick p
        join redrive.jobs j on j.id = p.id
        join redrive.campaign_jobs c on c.campaign = retry_now_v1.campaign and c.id = p.id
        where j.id = any (ids) and j.redrives = c.redrives and j.deliveries = c.deliveries),
    moved as (
        -- it has waited already, so it does not wait behind a backlog
        update redrive.jobs j
        set run_at = greatest(clock_timestamp(), p.turn), lane = least(j.lane, ~j.lane)
        from planned p where j.id = any (ids) and j.id = p.id
        returning j.id, j.queue)
    select coalesce(array_agg(m.id), '{}'), bit_or(redrive.wake_slot_v1(m.queue)) into done, slots
    from moved m;
    if slots is not null then
        perform pg_notify('redrive', slots::text);
    end if;
    update redrive.campaigns c
    set active_at = clock_timestamp(), redriven = c.redriven + cardinality(done)
    where c.id = retry_now_v1.campaign;
    return query
    select v.id, case when v.id <> all (done) then 'not_waiting' end from unnest(ids) as v(id);
end
$$;

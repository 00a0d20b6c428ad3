-- hold_failing: let the failing jobs of held groups wait, and the jobs of released groups run again.
-- A job that fails while its group is held is held by the next call, so an attempt that is due before
-- still runs. Jobs that a campaign has released are left to it until their attempt has failed.
-- in:    batch: how many jobs to change
-- out:   how many jobs were changed
-- locks: the end of the audit log, held_groups and jobs, skip locked: a later call changes the rest
-- plan:  jobs_failing_idx, campaign_jobs_redriven_idx, jobs_pkey
create or replace function redrive.hold_failing_v1(batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    held text[];
    freed text[];
    in_flight bigint[];
    n int;
    released int;
    slots int;
begin
    -- A retry that has succeeded ends the hold.
    perform from redrive.audit_chain a for update skip locked;
    if found then
        with tried as (
            select h.fingerprint, max(c.id) as campaign from redrive.held_groups h
            join redrive.campaigns c
                on c.filter ? 'failing' and c.filter ->> 'group' = h.fingerprint
                   and c.state = 'done' and c.succeeded > 0 and c.started_at > h.at
            where h.spread is null
            group by h.fingerprint),
        over as (
            update redrive.held_groups h set spread = interval '1 s'
            from tried t where h.fingerprint = t.fingerprint
            returning h.fingerprint, t.campaign)
        insert into redrive.audit (actor, action, why, n, detail)
        select 'redrive', 'release', format('campaign %s has succeeded', o.campaign), 1,
               jsonb_build_object('group', o.fingerprint)
        from over o;
    end if;
    select array_agg(h.fingerprint) filter (where h.spread is null),
           array_agg(h.fingerprint) filter (where h.spread is not null)
    into held, freed
    from (select * from redrive.held_groups o order by o.fingerprint for update skip locked) h;
    if held is null and freed is null then
        return 0;
    end if;
    in_flight := array(
        select j.id from redrive.campaigns c
        join redrive.campaign_jobs j on j.campaign = c.id and j.state = 'redriven'
        join redrive.jobs b on b.id = j.id and b.deliveries <= j.deliveries
        where c.id in (select redrive.live_campaigns_v1()) and c.filter ? 'failing'
          and c.filter ->> 'group' = any (held));
    with pick as materialized (
        select j.id from redrive.jobs j
        where j.fingerprint = any (held) and j.failed_at is not null
          and j.run_at > clock_timestamp() and j.run_at < redrive.held_until_v1()
          and j.id <> all (in_flight)
        limit hold_failing_v1.batch for update skip locked)
    update redrive.jobs j set run_at = redrive.held_until_v1()
    where j.id = any (array(select p.id from pick p));
    get diagnostics n = row_count;
    with pick as materialized (
        select j.id, h.spread from redrive.jobs j
        join redrive.held_groups h on h.fingerprint = j.fingerprint
        where j.fingerprint = any (freed) and j.failed_at is not null
          and j.run_at >= redrive.held_until_v1() and j.run_at < 'infinity'
        limit hold_failing_v1.batch for update of j skip locked),
    moved as (
        update redrive.jobs j set run_at = clock_timestamp() + random() * p.spread
        from pick p where j.id = p.id
        returning j.queue)
    select count(*), bit_or(redrive.wake_slot_v1(m.queue)) into released, slots from moved m;
    if slots is not null then
        perform pg_notify('redrive', slots::text);
    end if;
    delete from redrive.held_groups h
    where h.fingerprint = any (freed) and not exists (
        select from redrive.jobs j
        where j.fingerprint = h.fingerprint and j.failed_at is not null
          and j.run_at >= redrive.held_until_v1() and j.run_at < 'infinity');
    return n + released;
end
$$;

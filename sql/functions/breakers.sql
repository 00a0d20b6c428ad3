-- breakers: report what was seen of dependencies, and learn how they stand.
-- in:    parallel arrays: names, failures and successes since the last report, and how each breaker is set:
--        thresholds (failures in a window that open it, when they are at least half of what was seen),
--        windows and cooldowns in seconds (the cooldown doubles while it does not close, up to 16 times)
-- out:   state; open_for: seconds until it lets a probe through; failing: half of this window's calls or more failed
-- locks: one breaker row at a time, only when there is something to write
-- An open breaker becomes half open by itself when its time is over, so it cannot stay stuck.
create or replace function redrive.breakers_v1(
    names text[], failures int[], successes int[], thresholds int[], windows float8[], cooldowns float8[])
returns table (name text, state text, open_for float8, failing boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    seen record;
    b redrive.breakers;
    before text;
    now_at constant timestamptz := clock_timestamp();
begin
    for seen in
        select * from unnest(names, failures, successes, thresholds, windows, cooldowns)
            as v(name, failed, succeeded, threshold, span, cooldown)
        order by 1
    loop
        select * into b from redrive.breakers k where k.name = seen.name;
        if not found then
            insert into redrive.breakers (name) values (seen.name) on conflict do nothing;
            select * into b from redrive.breakers k where k.name = seen.name;
        end if;
        if seen.failed > 0 or (seen.succeeded > 0 and (b.failures > 0 or b.state <> 'closed'))
           or (b.state = 'open' and b.open_until <= now_at and b.forced_by is null) then
            select * into b from redrive.breakers k where k.name = seen.name for update;
            before := b.state;
            if b.window_at < now_at - seen.span * interval '1 second' then
                b.window_at := now_at; b.failures := 0; b.successes := 0;
            end if;
            b.failures := b.failures + seen.failed;
            b.successes := b.successes + seen.succeeded;
            if b.forced_by is not null then
                null;
            elsif b.state = 'open' and b.open_until <= now_at then
                b.state := 'half_open'; b.probe_by := null; b.probe_until := null;
            elsif b.state = 'half_open' and seen.failed > 0 or b.state = 'closed'
                  and b.failures >= seen.threshold and b.failures >= b.successes then
                b.state := 'open'; b.opened := b.opened + 1; b.opened_at := now_at; b.probe_by := null;
                b.open_until := now_at + seen.cooldown * least(2.0 ^ (b.opened - 1), 16) * interval '1 second';
            elsif b.state = 'half_open' and seen.succeeded > 0 then
                b.state := 'closed'; b.opened := 0; b.failures := 0; b.successes := 0; b.window_at := now_at;
                b.probe_by := null; b.open_until := null;
            end if;
            update redrive.breakers k
            set state = b.state, failures = b.failures, successes = b.successes, window_at = b.window_at,
                opened = b.opened, opened_at = b.opened_at, open_until = b.open_until, probe_by = b.probe_by,
                probe_until = case when b.probe_by is not null then b.probe_until end,
                changed_at = case when b.state <> before then now_at else k.changed_at end
            where k.name = b.name;
            if b.state <> before then
                notify redrive;
            end if;
        end if;
        name := b.name;
        state := b.state;
        open_for := greatest(coalesce(extract(epoch from b.open_until - now_at), 0), 0)::float8;
        failing := b.failures > 0 and b.failures >= b.successes
                   and b.window_at >= now_at - seen.span * interval '1 second';
        return next;
    end loop;
end
$$;

-- take_probe: one job of the whole fleet tries a half-open dependency; the lease runs out by itself.
create or replace function redrive.take_probe_v1(name text, worker int, lease interval) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with taken as (
        update redrive.breakers b set probe_by = worker, probe_until = clock_timestamp() + lease
        where b.name = take_probe_v1.name and b.state = 'half_open' and b.forced_by is null
          and (b.probe_until is null or b.probe_until < clock_timestamp())
        returning 1)
    select exists (select from taken)
$$;

-- force_breaker: an operator holds it open or closed; null lets it go by what is seen again.
create or replace function redrive.force_breaker_v1(name text, state text, actor text, why text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with forced as (
        update redrive.breakers b
        set state = coalesce(force_breaker_v1.state, 'closed'), failures = 0, successes = 0, opened = 0,
            open_until = null, probe_by = null, probe_until = null,
            forced_by = case when force_breaker_v1.state is not null then actor end,
            forced_why = case when force_breaker_v1.state is not null then why end,
            changed_at = clock_timestamp()
        where b.name = force_breaker_v1.name
        returning b.name),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, case when force_breaker_v1.state is null then 'reset breaker' else 'force breaker' end, why, 1,
               jsonb_build_object('breaker', f.name, 'state', force_breaker_v1.state)
        from forced f)
    select exists (select from forced)
$$;

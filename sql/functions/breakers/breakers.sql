-- breakers: report failures and successes of dependencies, and return the state of each breaker.
-- in:    parallel arrays: names; failures and successes since the last report; and the settings of
--        each breaker: thresholds, windows and cooldowns. The threshold is the number of failures
--        in a window that opens the breaker, if they are at least half of the calls. Windows and
--        cooldowns are seconds. The cooldown doubles up to 16 times its length while the breaker
--        does not close
-- out:   state; open_for: seconds until the breaker lets a probe through; failing: at least half of
--        this window's calls failed
-- locks: one breaker row at a time, and only if there is something to write. If a row stays locked
--        for longer than other reports take, nothing is written, and the breaker is returned as it
--        stands. Then an operator is forcing that breaker, which sets its counts to 0 anyway
-- An open breaker becomes half open when its cooldown ends, so it cannot stay stuck.
create or replace function redrive.breakers_v1(
    names text[], failures int[], successes int[], thresholds int[], windows float8[],
    cooldowns float8[])
returns table (name text, state text, open_for float8, failing boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
set jit = off
as $$
#variable_conflict use_column
declare
    is_ours boolean;
    seen record;
    b redrive.breakers;
    before text;
    now_at constant timestamptz := clock_timestamp();
    -- If something happened after this time, the server's clock was set back since then. The minute
    -- allows for other reports that were written while this one waited.
    soon constant timestamptz := now_at + interval '1 minute';
begin
    for seen in
        select * from unnest(names, failures, successes, thresholds, windows, cooldowns)
            as v(name, failed, succeeded, threshold, span, cooldown)
        order by 1
    loop
        select * into b from redrive.breakers k where k.name = seen.name;
        if not found or seen.failed > 0
           or (seen.succeeded > 0 and (b.failures > 0 or b.state <> 'closed'))
           or (b.state = 'open' and b.forced_by is null
               and (b.open_until <= now_at or b.opened_at > soon)) then
            is_ours := false;
            begin
                loop
                    select * into b from redrive.breakers k where k.name = seen.name for update;
                    exit when found;
                    -- A breaker that was unused for long may be deleted while this waits for its
                    -- row.
                    insert into redrive.breakers (name) values (seen.name) on conflict do nothing;
                end loop;
                is_ours := true;
            exception
                when lock_not_available then
                    select * into b from redrive.breakers k where k.name = seen.name;
            end;
        else
            is_ours := false;
        end if;
        if is_ours then
            before := b.state;
            if b.window_at not between now_at - seen.span * interval '1 second' and soon then
                b.window_at := now_at; b.failures := 0; b.successes := 0;
            end if;
            b.failures := b.failures + seen.failed;
            b.successes := b.successes + seen.succeeded;
            if b.forced_by is not null then
                null;
            elsif b.state = 'open' and (b.open_until <= now_at or b.opened_at > soon) then
                b.state := 'half_open'; b.probe_by := null; b.probe_until := null;
            elsif b.state = 'half_open' and seen.failed > 0 or b.state = 'closed'
                  and b.failures >= seen.threshold and b.failures >= b.successes then
                b.state := 'open'; b.opened := b.opened + 1; b.opened_at := now_at;
                b.probe_by := null;
                b.open_until := now_at
                    + seen.cooldown * least(2.0 ^ (b.opened - 1), 16) * interval '1 second';
            elsif b.state = 'half_open' and seen.succeeded > 0 then
                b.state := 'closed'; b.opened := 0; b.failures := 0; b.successes := 0;
                b.window_at := now_at; b.probe_by := null; b.open_until := null;
            end if;
            update redrive.breakers k
            set state = b.state, failures = b.failures, successes = b.successes,
                window_at = b.window_at, opened = b.opened, opened_at = b.opened_at,
                open_until = b.open_until, probe_by = b.probe_by,
                probe_until = case when b.probe_by is not null then b.probe_until end,
                changed_at = case when b.state <> before then now_at else k.changed_at end
            where k.name = b.name;
            if b.state <> before then
                notify redrive;
            end if;
            if b.state <> before then
                insert into redrive.marks (what, name, kinds)
                values ('breaker ' || replace(b.state, '_', '-'), b.name,
                        redrive.kinds_behind_v1(b.name));
            end if;
        end if;
        name := seen.name;
        state := coalesce(b.state, 'closed');  -- null: another session is inserting it now
        open_for := greatest(coalesce(extract(epoch from b.open_until - now_at), 0), 0)::float8;
        failing := coalesce(b.failures, 0) > 0 and b.failures >= b.successes
                   and b.window_at >= now_at - seen.span * interval '1 second';
        return next;
    end loop;
end
$$;

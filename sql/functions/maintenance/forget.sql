-- forget: delete what is past its retention, one step at a time.
-- Each step reads or deletes at most `batch` rows of each table. The retention table holds the
-- periods, so a caller cannot shorten them.
-- out:   gone: how many rows or names were deleted
--        more: there may be more. Tables without an order of time are read in a walk; false once
--        all walks have reached their end, and start again
-- locks: the chore's row, skip locked: while one worker does this, the others have nothing to do
create or replace function redrive.forget_v1(batch int, out gone int, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    keep jsonb;
    counts int[];
begin
    gone := 0;
    more := false;
    perform from redrive.chores c where c.name = 'forget' for update skip locked;
    if not found then
        return;
    end if;
    select jsonb_object_agg(r.what, r.keep) into keep from redrive.retention r;
    counts := array[
        redrive.forget_batches_v1((keep ->> 'campaigns')::interval, batch),
        redrive.forget_campaigns_v1((keep ->> 'campaigns')::interval, batch),
        redrive.forget_completions_v1((keep ->> 'keys')::interval, batch),
        redrive.forget_effects_v1((keep ->> 'keys')::interval, batch),
        redrive.forget_envelopes_v1(batch),
        redrive.forget_failures_v1(batch),
        redrive.forget_groups_v1((keep ->> 'groups')::interval, batch),
        redrive.forget_imports_v1((keep ->> 'keys')::interval, batch),
        redrive.forget_lanes_v1(batch),
        redrive.forget_names_v1((keep ->> 'names')::interval, batch),
        redrive.forget_schedules_v1((keep ->> 'names')::interval, batch),
        redrive.forget_recovered_v1(batch),
        redrive.forget_results_v1(batch),
        redrive.forget_samples_v1(batch),
        redrive.forget_side_effects_v1(batch)];
    -- Last, as in all functions that write to the audit log, and without waiting for its lock.
    perform from redrive.audit_chain c for update skip locked;
    if found then
        counts := counts || array[
            redrive.interrupt_runs_v1(batch),
            redrive.forget_audit_v1((keep ->> 'audit')::interval, batch)];
    end if;
    select sum(c.n) into gone from unnest(counts) as c(n);
    more := batch <= any (counts)
            or exists (select from redrive.chores c where c.name ~ '^forget_' and c.place >= 0);
    if not more then
        update redrive.chores c set place = 0 where c.name ~ '^forget_';
        perform redrive.finish_chore_v1('retention', '1 day');
    end if;
end
$$;

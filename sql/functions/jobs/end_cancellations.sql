-- end_cancellations: finish cancellations of jobs that were running when they were cancelled.
-- It ends jobs that have come back to wait since, writes the ended ones to the audit log, and
-- deletes the cancellations that are over.
-- out:   how many were looked at
-- locks: cancellations, then as hold_waiting, then the end of the audit log: each skip locked.
--        While an operator's transaction has written to the log, jobs end all the same, and their
--        audit lines are written later
-- Workers do not write to the audit log when they settle jobs, because its lines wait for each
-- other.
create or replace function redrive.end_cancellations_v1(batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    waiting bigint[];      -- no worker has claimed these jobs
    past bigint[];         -- these have ended
    picked bigint[];
    ended bigint[];
begin
    -- The job may have died and been redriven; nobody asked to cancel that generation.
    waiting := redrive.unclaimed_v1(array(
        select j.id from redrive.cancellations c
        join redrive.jobs j on j.id = c.job and j.redrives = c.redrives));
    waiting := array(
        select c.job from redrive.cancellations c
        where c.job = any (waiting[1:end_cancellations_v1.batch])
        order by c.job for update skip locked);
    -- While the audit log is locked, there may be many of these. They keep no waiting job alive.
    past := array(
        select c.job from redrive.cancellations c
        where not exists (select from redrive.jobs j where j.id = c.job and j.redrives = c.redrives)
        order by c.job limit end_cancellations_v1.batch for update skip locked);
    picked := waiting || past;
    if picked = '{}' then
        return 0;
    end if;
    ended := redrive.end_waiting_v1(waiting, false);
    update redrive.cancellations c set is_heeded = true
    where c.job = any (ended) and not c.is_heeded;
    perform from redrive.audit_chain c for update skip locked;
    if not found then
        return cardinality(ended);
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    select c.actor, 'end cancel', c.why, count(*), jsonb_build_object('ids', jsonb_agg(c.job))
    from redrive.cancellations c
    where c.job = any (picked) and c.is_heeded
    group by c.actor, c.why;
    delete from redrive.cancellations c
    where c.job = any (picked)
      and not exists (select from redrive.jobs j where j.id = c.job and j.redrives = c.redrives);
    return cardinality(picked);
end
$$;

-- run_now: make jobs due now that wait for their time. Audited.
-- A job that waits for something else, such as the job before it, still waits.
-- out:   the ids of the jobs that had waited for a later time
-- locks: jobs, ascending
-- plan:  jobs_pkey
create or replace function redrive.run_now_v1(ids bigint[], actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    due bigint[];
    slots int;
begin
    -- Claims take only due jobs, so no worker has one of these.
    with pick as materialized (
        select j.id from redrive.jobs j
        where j.id = any (run_now_v1.ids) and j.run_at > clock_timestamp()
          and j.run_at < 'infinity'
        order by j.id for update),
    moved as (
        update redrive.jobs j set run_at = clock_timestamp()
        where j.id = any (array(select p.id from pick p))
        returning j.id, j.queue)
    select array_agg(m.id order by m.id), bit_or(redrive.wake_slot_v1(m.queue)) into due, slots
    from moved m;
    if due is null then
        return;
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (run_now_v1.actor, 'run now', run_now_v1.why, cardinality(due),
            jsonb_build_object('ids', to_jsonb(due)));
    perform pg_notify('redrive', slots::text);
    return query select d.id from unnest(due) as d(id);
end
$$;

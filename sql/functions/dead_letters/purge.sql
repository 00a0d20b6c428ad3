-- purge: delete one chunk of dead letters for good, with their edits.
-- The job's failures are deleted when no generation of the job is left. Ordering keys that the dead
-- letters held continue.
-- in:    run: the line of the audit log that began the run; ids and generations as selected; the
--        states that may be deleted
-- out:   how many were deleted
-- errors: RD001 'run: rule'
-- locks: skip locked: a dead letter that a redrive holds now stays
create or replace function redrive.purge_v1(
    run bigint, ids bigint[], generations int[], states text[])
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    purged int;
    queues text[];
    keys text[];
begin
    with pick as materialized (
        select d.id, d.redrives
        from unnest(ids, generations) as v(id, redrives)
        join redrive.dead_letters d on d.id = v.id and d.redrives = v.redrives
        where d.state = any (states)
        for update of d skip locked),
    gone as (
        delete from redrive.dead_letters d using pick p
        where d.id = p.id and d.redrives = p.redrives
        returning d.id, d.redrives, d.queue, d.kind, d.reason, d.state, d.batch, d.ordering_key,
                  d.holds_key and d.state = 'open' as held),
    finished as (                                -- jobs that have no row left
        select distinct g.id from gone g
        where not exists (select from redrive.jobs j where j.id = g.id)
          and not exists (select from redrive.dead_letters d
                          where d.id = g.id
                            and not exists (select from pick p
                                            where p.id = d.id and p.redrives = d.redrives))),
    forgotten as (
        delete from redrive.failures f using finished n where f.job = n.id),
    unnoted as (
        delete from redrive.side_effects e using finished n where e.job = n.id),
    batched as (                                 -- the job's work will never be done
        insert into redrive.batch_deltas (batch, dead, cancelled)
        select batch, -count(*), count(*) from gone
        where batch is not null and state in ('open', 'dismissed') group by batch),
    unchecked as (
        delete from redrive.checkpoints c using finished n where c.job = n.id),
    halted as (
        delete from redrive.progress p using finished n where p.job = n.id),
    unedited as (
        delete from redrive.edits e using gone g where e.job = g.id and e.redrives = g.redrives),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, case state when 'open' then 'purged' else 'forgotten' end, reason,
               count(*)
        from gone group by queue, kind, state, reason)
    select count(*), array_agg(g.queue) filter (where g.held),
           array_agg(g.ordering_key) filter (where g.held)
    into purged, queues, keys
    from gone g;
    perform redrive.wake_keys_v1(queues, keys);
    perform redrive.count_run_v1(
        run, 'purge', purged, jsonb_build_object('ids', to_jsonb(ids), 'states', states));
    return purged;
end
$$;

-- take_out: take waiting jobs and open dead letters out of this database, to be moved. Audited.
-- All rows of each job become one document in moved_jobs. From then on, no worker can claim it here.
-- in:    ids; jobs that cannot be moved now stay
-- out:   how many were taken
-- errors: RD001 'move: rule'
-- locks: the move's row, shared, so that the move cannot end meanwhile; then as hold_waiting; then
--        dead letters, ascending
-- plan:  jobs_pkey, dead_letters_pkey
-- The idempotency key of a job stays here as a key that is done. So a producer that still enqueues
-- here cannot repeat a job that runs in the other cell.
create or replace function redrive.take_out_v1(move uuid, ids bigint[], actor text, why text)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    moving redrive.moves;
    taken bigint[];
    key_queues text[];     -- of jobs that have an ordering key
    keys text[];
begin
    moving := redrive.open_move_v1(take_out_v1.move, is_incoming => false);
    taken := redrive.hold_waiting_v1(take_out_v1.ids, true);
    perform from redrive.dead_letters d where d.id = any (take_out_v1.ids)
    order by d.id, d.redrives for update;
    taken := array(
        select m.id from redrive.movable_v1(moving.tenant, take_out_v1.ids) m
        where m.stays is null and (m.what = 'dead letter' or m.id = any (taken)));
    if cardinality(taken) = 0 then
        return 0;
    end if;
    insert into redrive.moved_jobs (id, move, queue, ordering_key, data)
    select t.id, take_out_v1.move, coalesce(j.queue, o.queue),
           coalesce(j.ordering_key, o.ordering_key),
           jsonb_build_object(
               -- a parked job is due when it was, and the other cell parks it again
               'job', to_jsonb(j) || jsonb_build_object('run_at', coalesce(w.due, j.run_at)),
               'dead_letters', (
                   select coalesce(jsonb_agg(to_jsonb(d) order by d.redrives), '[]')
                   from redrive.dead_letters d where d.id = t.id),
               'failures', (
                   select coalesce(jsonb_agg(to_jsonb(f) order by f.deliveries), '[]')
                   from redrive.failures f where f.job = t.id),
               'side_effects', (
                   select coalesce(jsonb_agg(to_jsonb(e) order by e.at), '[]')
                   from redrive.side_effects e where e.job = t.id),
               'checkpoints', (
                   select coalesce(jsonb_agg(to_jsonb(c)), '[]')
                   from redrive.checkpoints c where c.job = t.id),
               'edits', (
                   select coalesce(jsonb_agg(to_jsonb(e) order by e.n), '[]')
                   from redrive.edits e where e.job = t.id),
               'was_done', exists (
                   select from redrive.completions c
                   where c.kind = o.kind and c.key = '$unique:done:' || t.id))
    from unnest(taken) as t(id)
    left join redrive.jobs j on j.id = t.id
    left join redrive.limit_waits w on w.job = t.id
    left join redrive.dead_letters o on o.id = t.id and o.state = 'open';
    with gone as (
        delete from redrive.jobs j where j.id = any (taken)
        returning j.id, j.queue, j.kind, j.tenant, j.idempotency_key, j.created_at),
    kept as (
        insert into redrive.completions (kind, key, job, enqueued_at, tenant, is_moved)
        select g.kind, g.idempotency_key, g.id, g.created_at, g.tenant, true
        from gone g where g.idempotency_key is not null
        on conflict do nothing)
    -- As in end_waiting, count them as claimed, too.
    insert into redrive.deltas (queue, kind, event, n)
    select g.queue, g.kind, e.event, count(*)
    from gone g cross join (values ('claimed'), ('cancelled')) as e(event)
    group by g.queue, g.kind, e.event;
    with gone as (
        delete from redrive.dead_letters d where d.id = any (taken)
        returning d.queue, d.kind, d.reason, d.state)
    insert into redrive.deltas (queue, kind, event, reason, n)
    select g.queue, g.kind, 'purged', g.reason, count(*) from gone g
    where g.state = 'open' group by g.queue, g.kind, g.reason;
    delete from redrive.failures f where f.job = any (taken);
    delete from redrive.side_effects e where e.job = any (taken);
    delete from redrive.checkpoints c where c.job = any (taken);
    delete from redrive.progress p where p.job = any (taken);
    delete from redrive.edits e where e.job = any (taken);
    delete from redrive.limit_waits w where w.job = any (taken);
    -- another tenant may have jobs of the same ordering key
    select array_agg(m.queue), array_agg(m.ordering_key) into key_queues, keys
    from redrive.moved_jobs m where m.id = any (taken) and m.ordering_key is not null;
    perform redrive.wake_keys_v1(key_queues, keys);
    insert into redrive.audit (actor, action, why, n, detail)
    values (take_out_v1.actor, 'move out', take_out_v1.why, cardinality(taken),
            jsonb_build_object('ids', to_jsonb(taken), 'move', move, 'to', moving.cell));
    return cardinality(taken);
end
$$;

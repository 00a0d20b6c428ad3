-- add_documents: add the jobs and dead letters of documents, as take_out wrote them.
-- in:    documents: a JSON array; each has its `id` in this database
-- out:   the ids of jobs that are left out, because this database has a job of their idempotency
--        key, or the key has succeeded here
-- errors: RD001 'field: rule'
-- locks: keys of jobs, as enqueue
-- Jobs without a lane, limits or a place in a line get these as if they were enqueued now. Dead
-- letters count as imported and not as added, so no alert takes a move for an incident.
create or replace function redrive.add_documents_v1(documents jsonb) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    refused bigint[];
begin
    perform redrive.admit_names_v1(array_agg(n.queue), array_agg(n.kind), array_agg(n.priority))
    from (select distinct r ->> 'queue' as queue, r ->> 'kind' as kind,
                 (r ->> 'priority')::smallint as priority
          from jsonb_array_elements(documents) as g(doc),
          lateral (select g.doc -> 'job' where jsonb_typeof(g.doc -> 'job') = 'object'
                   union all select jsonb_array_elements(g.doc -> 'dead_letters')) as s(r)) n
    having count(*) > 0;
    -- admit looks at the envelopes of jobs that were never redriven
    perform redrive.admit_envelopes_v1(array_agg(s.r #>> '{headers,$redrive}'))
    from jsonb_array_elements(documents) as g(doc),
    lateral (select g.doc -> 'job' where (g.doc #>> '{job,redrives}')::int > 0
             union all select jsonb_array_elements(g.doc -> 'dead_letters')) as s(r)
    where s.r -> 'headers' ? '$redrive'
    having count(*) > 0;

    -- 1. Add the jobs. The key of a job that was moved from here before is free again. A unique job
    -- that meets another one may be its newer replacement, so it is added without the key.
    delete from redrive.completions c
    using jsonb_array_elements(documents) as g(doc)
    where c.kind = g.doc #>> '{job,kind}' and c.key = g.doc #>> '{job,idempotency_key}'
      and c.is_moved;
    with given as materialized (
        select (g.doc ->> 'id')::bigint as new_id, r.*,
               r.idempotency_key is not null and exists (
                   select from redrive.completions c
                   where c.kind = r.kind and c.key = r.idempotency_key) as is_done,
               r.idempotency_key is not null and exists (
                   select from redrive.jobs j
                   where j.kind = r.kind and j.idempotency_key = r.idempotency_key) as is_live
        from jsonb_array_elements(documents) as g(doc),
        lateral jsonb_populate_record(null::redrive.jobs, g.doc -> 'job') r
        where jsonb_typeof(g.doc -> 'job') = 'object'),
    added as (
        insert into redrive.jobs (
            id, run_at, deliveries, attempt, losses, streak, max_attempts, priority, lane,
            created_at, expires_at, failed_at, redrives, queue, kind, fingerprint, tenant,
            ordering_key, idempotency_key, headers, payload, noted, refunds)
        select g.new_id, case when g.run_at = 'infinity' then clock_timestamp() else g.run_at end,
               g.deliveries, g.attempt, g.losses, g.streak, g.max_attempts, g.priority,
               redrive.lane_of_v1(g.queue, g.tenant), g.created_at, g.expires_at, g.failed_at,
               g.redrives, g.queue, g.kind, g.fingerprint, g.tenant, g.ordering_key,
               case when not (g.is_done or g.is_live) then g.idempotency_key end,
               g.headers, g.payload, g.noted, g.refunds
        from given g
        where not (g.is_done or g.is_live) or g.idempotency_key like '$unique:%'
        order by g.new_id
        on conflict (kind, idempotency_key) where idempotency_key is not null do nothing
        returning id, queue, kind, redrives),
    counted as (                                 -- admit has counted the others
        insert into redrive.deltas (queue, kind, event, n)
        select a.queue, a.kind, 'enqueued', count(*) from added a
        where a.redrives > 0 group by a.queue, a.kind)
    select coalesce(array_agg(g.new_id), '{}') into refused from given g
    where g.new_id not in (select a.id from added a);

    -- 2. Add the other rows of each job, except for jobs that were left out.
    with docs as materialized (
        select (g.doc ->> 'id')::bigint as id, g.doc
        from jsonb_array_elements(documents) as g(doc)
        where (g.doc ->> 'id')::bigint <> all (refused)),
    buried as (
        insert into redrive.dead_letters
        select r.*
        from docs g cross join lateral jsonb_array_elements(g.doc -> 'dead_letters') as a(letter)
        cross join lateral jsonb_populate_record(
            null::redrive.dead_letters,
            a.letter || jsonb_build_object(
                'id', g.id, 'batch', null, 'campaign', null,
                'lane', redrive.lane_of_v1(a.letter ->> 'queue', a.letter ->> 'tenant'))) r
        order by r.id, r.redrives
        returning queue, kind, reason, state),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select b.queue, b.kind, 'imported', b.reason, count(*) from buried b
        where b.state = 'open' group by b.queue, b.kind, b.reason),
    failed as (
        insert into redrive.failures
        select r.* from docs g cross join lateral jsonb_array_elements(g.doc -> 'failures') as a(v)
        cross join lateral jsonb_populate_record(
            null::redrive.failures, a.v || jsonb_build_object('job', g.id)) r),
    affected as (
        insert into redrive.side_effects
        select r.*
        from docs g cross join lateral jsonb_array_elements(g.doc -> 'side_effects') as a(v)
        cross join lateral jsonb_populate_record(
            null::redrive.side_effects, a.v || jsonb_build_object('job', g.id)) r),
    checked as (
        insert into redrive.checkpoints
        select r.*
        from docs g cross join lateral jsonb_array_elements(g.doc -> 'checkpoints') as a(v)
        cross join lateral jsonb_populate_record(
            null::redrive.checkpoints, a.v || jsonb_build_object('job', g.id)) r),
    edited as (
        insert into redrive.edits
        select r.* from docs g cross join lateral jsonb_array_elements(g.doc -> 'edits') as a(v)
        cross join lateral jsonb_populate_record(
            null::redrive.edits, a.v || jsonb_build_object('job', g.id)) r)
    -- the memory of this dead letter alone that its work was done: see enqueue
    insert into redrive.completions (kind, key, job)
    select g.doc #>> '{dead_letters,0,kind}', '$unique:done:' || g.id, g.id
    from docs g where (g.doc ->> 'was_done')::boolean
    on conflict do nothing;                      -- it stays where the job was taken out
    return refused;
end
$$;

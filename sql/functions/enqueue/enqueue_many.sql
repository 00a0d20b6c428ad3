-- enqueue_many: add jobs in one statement, or one by one if one statement cannot add them.
-- in:    jobs: in one of the shapes that given_jobs reads
-- out:   n (position from 0), id, created
-- errors: as enqueue
-- locks: each key in the order of the jobs, as enqueue
-- plan:  completions_pkey, jobs_idempotency_idx, jobs_pkey
-- The first try assumes that no idempotency key is taken. Then inserts cost less, and the first job
-- of each ordering key is known before. The first taken key ends that try, and all jobs are
-- inserted again.
create or replace function redrive.enqueue_many_v1(jobs jsonb)
returns table (n int, id bigint, created boolean)
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
    since constant timestamptz := clock_timestamp();
    may_meet boolean := exists (  -- whether a key is taken; in a repeated call the first one is
        select from redrive.jobs j
        where j.kind = coalesce(jobs -> 'kind' ->> 0, jobs -> 0 ->> 'kind')
          and j.idempotency_key = coalesce(jobs -> 'idempotency_key' ->> 0,
                                           jobs -> 0 ->> 'idempotency_key'));
    looked text;                 -- whether the trigger can skip its search for older jobs of a key
    in_turn boolean;             -- enqueue one by one: a job is refused, may replace another, or
                                 -- was in front of others and has succeeded before
    is_unique boolean;           -- whether a job is unique, which gives it a key
    has_both boolean;            -- whether a job has both an ordering key and another key
    ids bigint[];                -- of all jobs
    keyed int[];                 -- the places of jobs with a key, from 1; parallel to it:
    kinds text[];
    keys text[];
    windows timestamptz[];       -- a unique job that was enqueued before this time does not count
    came boolean[];              -- whether it was inserted; null: all were
    done int[];                  -- the places of jobs that succeeded before,
    done_as bigint[];            -- and the ids under which they did
    taken int[];                 -- the places of jobs whose key another job has,
    holders bigint[];            -- and that job; null: it has ended meanwhile
begin
    loop
        begin
            -- 1. Insert all jobs with one statement, unless one of them must be enqueued by itself.
            looked := set_config('redrive.looked', case when may_meet then 'off' else 'on' end, true);
            with given as materialized (
                -- first the values that are read more than once
                select r.n, nextval('redrive.jobs_id_seq') as id, r.kind,
                       case when r.unique_for is null then r.idempotency_key
                            else redrive.unique_key_v1(
                                coalesce(r.queue, 'default'), r.tenant, r.ordering_key,
                                coalesce(r.payload, '{}'), r.unique_by) end as key,
                       make_interval(secs => r.unique_for) as unique_for,
                       -- what enqueue refuses and what could not be stored at all
                       (r.kind is null or r.priority not between -1000 and 1000
                        or r.run_at = 'infinity' or r.run_at < '2000-01-01 00:00:00+00'
                        or length(r.idempotency_key) > 255 or r.idempotency_key like '$unique:%'
                        or length(r.ordering_key) > 255
                        or make_interval(secs => r.expires_in)
                           not between interval '1 ms' and interval '100 years'
                        or r.on_conflict = 'replace'
                        or num_nonnulls(r.delay, r.unique_for, r.unique_by, r.on_conflict) > 0
                           and redrive.unique_fault_v1(
                               coalesce(r.payload, '{}'), r.run_at, r.idempotency_key,
                               make_interval(secs => r.delay), make_interval(secs => r.unique_for),
                               r.unique_by, r.on_conflict, r.batch) is not null) as is_odd,
                       coalesce(r.payload, '{}') as payload, coalesce(r.queue, 'default') as queue,
                       greatest(r.run_at, since + coalesce(make_interval(secs => r.delay), '0'))
                           as run_at,
                       coalesce(r.priority, 0) as priority, r.max_attempts, r.ordering_key,
                       r.tenant, since + make_interval(secs => r.expires_in) as expires_at,
                       coalesce(r.headers, '{}') as headers, r.batch
                from redrive.given_jobs_v1(jobs) r),
            heads as (
                -- The first job of each ordering key in this call. If jobs with keys of their own
                -- may be skipped, each job may be the first.
                select unnest(case when may_meet and bool_or(g.key is not null)
                                   then array_agg(g.n) else array[min(g.n)] end) as n,
                       g.queue, g.ordering_key
                from given g where g.ordering_key is not null group by g.queue, g.ordering_key),
            first as (
                -- the jobs with nothing older in front of them, found as park_behind_key does
                select h.n from heads h
                where may_meet
                   or (select o.id from redrive.jobs o
                       where o.queue = h.queue and o.ordering_key = h.ordering_key
                         and o.id >= coalesce((
                             select k.jobs_from from redrive.hot_keys k
                             where k.queue = h.queue and k.ordering_key = h.ordering_key), 0)
                       order by o.id desc limit 1) is null
                      and (select d.id from redrive.dead_letters d
                           where d.queue = h.queue and d.ordering_key = h.ordering_key
                             and d.holds_key and d.state = 'open'
                           limit 1) is null),
            wanted as not materialized (
                select g.id, g.kind, g.payload, g.queue,
                       case when g.ordering_key is not null and g.n not in (select f.n from first f)
                            then 'infinity' else g.run_at end,
                       g.priority,
                       case when g.tenant is null then 0 else coalesce(
                           (select 1 + abs(hashtext(g.tenant)::bigint) % q.lanes
                            from redrive.queues q
                            where q.queue = g.queue and q.lanes > 1), 0) end,
                       g.max_attempts, g.key, g.ordering_key, g.tenant, g.expires_at, g.headers,
                       g.batch
                from given g
                where not exists (select from given o where o.is_odd)),
            added as (
                insert into redrive.jobs (
                    id, kind, payload, queue, run_at, priority, lane, max_attempts, idempotency_key,
                    ordering_key, tenant, expires_at, headers, batch)
                select w.* from wanted w where not may_meet),
            added_if_free as (
                insert into redrive.jobs as j (
                    id, kind, payload, queue, run_at, priority, lane, max_attempts, idempotency_key,
                    ordering_key, tenant, expires_at, headers, batch)
                select w.* from wanted w where may_meet
                on conflict (kind, idempotency_key) where idempotency_key is not null do nothing
                returning j.id)
            select bool_or(g.is_odd), bool_or(g.unique_for is not null),
                   bool_or(g.key is not null and g.ordering_key is not null), array_agg(g.id),
                   array_agg(g.n) filter (where g.key is not null),
                   array_agg(g.kind) filter (where g.key is not null),
                   array_agg(g.key) filter (where g.key is not null),
                   array_agg(since - g.unique_for) filter (where g.key is not null),
                   array_agg(g.id in (select a.id from added_if_free a)) filter (
                       where g.key is not null and may_meet)
            into in_turn, is_unique, has_both, ids, keyed, kinds, keys, windows, came
            from given g;
            looked := set_config('redrive.looked', 'off', true);
            exit when in_turn or keyed is null;

            -- 2. Find the keys that have succeeded before.
            -- A key may have succeeded between two snapshots. Each insert above waited for the job
            -- that held the key, so these statements see what that job's completion wrote.
            if is_unique then
                -- A dead letter from before keeps its own memory that this work was done.
                with gone as (
                    delete from redrive.completions c
                    using unnest(kinds, keys, windows, came) as v(kind, key, window_start, is_new)
                    where v.is_new is not false and c.kind = v.kind and c.key = v.key
                      and c.enqueued_at <= v.window_start
                    returning c.kind, c.key, c.job)
                insert into redrive.completions (kind, key, job)
                select g.kind, '$unique:done:' || d.id, g.job
                from gone g
                join redrive.dead_letters d on d.kind = g.kind and d.idempotency_key = g.key
                where d.state in ('open', 'dismissed')
                on conflict do nothing;
            end if;
            if kinds[1] <> any (kinds) or exists (
                select from redrive.completions c where c.kind = kinds[1] and c.key = any (keys))
            then
                select array_agg(v.n), array_agg(c.job) into done, done_as
                from unnest(keyed, kinds, keys, came) as v(n, kind, key, is_new)
                join redrive.completions c on c.kind = v.kind and c.key = v.key
                where v.is_new is not false;
            end if;

            -- 3. Start again if a job must be deleted that others may be parked behind.
            exit when done is null or not has_both;
            raise unique_violation;
        exception when unique_violation then
            in_turn := done is not null;
            exit when in_turn;
            if may_meet then
                raise;
            end if;
            may_meet := true;
        end;
    end loop;

    -- 4. Enqueue the jobs one by one, if one statement cannot add them.
    if in_turn then
        return query select e.n, e.id, e.created from redrive.enqueue_each_v1(jobs, null) e;
        return;
    end if;

    -- 5. Refuse a key that succeeded after our snapshot. Return if all jobs are new.
    if keyed is not null then
        perform redrive.refuse_unseen_v1(array_agg(v.kind), array_agg(v.key))
        from unnest(kinds, keys, came) as v(kind, key, is_new)
        where v.is_new is not false and current_setting('transaction_isolation') not like 'read %';
    end if;
    if done is null and (came is null or true = all (came)) then
        return query select generate_subscripts(ids, 1) - 1, unnest(ids), true;
        return;
    end if;

    -- 6. Delete the inserted jobs whose keys have succeeded before.
    with gone as (
        delete from redrive.jobs j
        where j.id = any (array(select ids[d.n] from unnest(done) as d(n)))
        returning j.queue, j.kind, j.batch),
    unparked as (
        delete from redrive.limit_waits w
        where w.job = any (array(select ids[d.n] from unnest(done) as d(n)))),
    uncounted as (
        insert into redrive.deltas (queue, kind, event, n)
        select g.queue, g.kind, 'enqueued', -count(*) from gone g group by g.queue, g.kind)
    insert into redrive.batch_deltas (batch, total)
    select g.batch, -count(*) from gone g where g.batch is not null group by g.batch;

    -- 7. Find the jobs that hold the keys of the others.
    select array_agg(v.n), array_agg(coalesce(j.id, c.job)) into taken, holders
    from unnest(keyed, kinds, keys, windows, came) as v(n, kind, key, window_start, is_new)
    left join redrive.jobs j on j.kind = v.kind and j.idempotency_key = v.key
    left join redrive.completions c
        on c.kind = v.kind and c.key = v.key
           and (v.window_start is null or c.enqueued_at > v.window_start)
    where v.is_new is false;
    done := done || taken;
    done_as := done_as || holders;

    -- 8. Return all jobs. Enqueue those whose key became free meanwhile.
    return query
    select (o.n - 1)::int, o.id, true from unnest(ids) with ordinality as o(id, n)
    where o.n not in (select d.n from unnest(done) as d(n))
    union all
    select d.n - 1, d.job, false from unnest(done, done_as) as d(n, job) where d.job is not null
    union all
    select e.n, e.id, e.created
    from (select array_agg(d.n) as places
          from unnest(done, done_as) as d(n, job) where d.job is null having count(*) > 0) r,
    lateral redrive.enqueue_each_v1(jobs, r.places) e
    order by 1;
end
$$;

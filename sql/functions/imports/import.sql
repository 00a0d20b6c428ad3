-- import: add dead letters of another system, all of them or none. Audited.
-- A dead letter that was imported from this source before is left out.
-- in:    source: a name of the other system
--        letters: a JSON array of {source_id, kind, queue, payload, headers, tenant,
--        idempotency_key, reason, category, error_class, message, fingerprint, attempts, died_at,
--        created_at, is_live}; without died_at it died now and was created by then
-- out:   n (from 1) and id of each new dead letter; import_failures adds what else is known
-- errors: RD001 'letters[n].field: rule', or 'field: rule' of a name or an encrypted payload
-- locks: imports, by their source_id, so that two imports of one source never wait in a circle;
--        then the completions of their keys
-- They count as imported and not as added, so no alert takes an import for an incident. With is_live,
-- a dead letter that died within the last hour counts as added: its job came, was claimed, and died.
create or replace function redrive.import_v1(source text, letters jsonb, actor text, why text)
returns table (n int, id bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    fault text;
    fresh jsonb;                 -- source_id -> the job's id
begin
    select format('letters[%s].%s', v.n - 1, v.fault) into fault
    from (
        select a.n, case
            when length(r.source_id) not between 1 and 255 or r.source_id is null
                then 'source_id: must have 1 to 255 characters'
            when r.payload is null then 'payload: must be an object, not null'
            when redrive.payload_fault(r.payload) is not null
                then redrive.payload_fault(r.payload)
            when r.headers is null then 'headers: must be an object'
            when redrive.unfit_headers_v1(r.headers, 0) is not null
                then redrive.unfit_headers_v1(r.headers, 0)
            when length(r.tenant) not between 1 and 255
                then 'tenant: must have 1 to 255 characters'
            when length(r.idempotency_key) not between 1 and 255
                then 'idempotency_key: must have 1 to 255 characters'
            when r.reason in ('attempts_exhausted', 'not_retryable', 'same_failure', 'expired',
                              'invalid_payload', 'gave_up', 'killed_worker', 'undecryptable')
                 is not true
                then 'reason: must be one for which a job dies'
            when r.category in ('transient', 'throttled', 'invalid', 'auth', 'missing', 'bug',
                                'lost', 'other') is not true
                then 'category: must be one of a failure'
            when num_nulls(r.error_class, r.message, r.fingerprint) > 0
                then 'error_class: give it, message and fingerprint'
            when r.attempts between 1 and 100000 is not true
                then 'attempts: must lie between 1 and 100000'
            when r.died_at not between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
                then 'died_at: must lie between the years 2000 and 9999'
            when r.created_at < '2000-01-01 00:00:00+00' or r.created_at > r.died_at
                then 'created_at: must lie between the year 2000 and died_at' end as fault
        from jsonb_array_elements(letters) with ordinality a(value, n),
        lateral jsonb_to_record(a.value) as r(
            source_id text, payload jsonb, headers jsonb, tenant text, idempotency_key text,
            reason text, category text, error_class text, message text, fingerprint text,
            attempts int, died_at timestamptz, created_at timestamptz)) v
    where v.fault is not null
    order by v.n limit 1;
    if coalesce(length(source), 0) not between 1 and 255 then
        fault := 'source: must have 1 to 255 characters';
    end if;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    with taken as (
        insert into redrive.imports (source, source_id)
        select import_v1.source, v.source_id
        from (select distinct a ->> 'source_id' as source_id
              from jsonb_array_elements(letters) a) v
        order by v.source_id
        on conflict do nothing
        returning source_id, job)
    select jsonb_object_agg(t.source_id, t.job) into fresh from taken t;
    if fresh is null then
        return;
    end if;
    perform redrive.admit_names_v1(
        array_agg(f.queue), array_agg(f.kind), array_agg(0::smallint))
    from (select distinct coalesce(a ->> 'queue', '') as queue, coalesce(a ->> 'kind', '') as kind
          from jsonb_array_elements(letters) a where fresh ? (a ->> 'source_id')) f;
    perform redrive.admit_envelopes_v1(array_agg(a #>> '{headers,$redrive}'))
    from jsonb_array_elements(letters) a
    where fresh ? (a ->> 'source_id') and a -> 'headers' ? '$redrive'
    having count(*) > 0;
    -- The keys of these dead letters may be past their retention. With a new date, a session that
    -- forgets keys now leaves them, although it cannot see the dead letters yet.
    with known as materialized (
        select c.kind, c.key from redrive.completions c
        join jsonb_array_elements(letters) a
            on c.kind = a ->> 'kind' and c.key = a ->> 'idempotency_key'
        where fresh ? (a ->> 'source_id')
        order by c.kind, c.key for update of c)
    update redrive.completions c set at = clock_timestamp()
    from known k where c.kind = k.kind and c.key = k.key;
    return query
    with came as materialized (
        -- if two have the same source_id, the first
        select distinct on (r.source_id) a.n::int as n, (fresh ->> r.source_id)::bigint as job, r.*,
               least(r.died_at, clock_timestamp()) as died
        from jsonb_array_elements(letters) with ordinality a(value, n),
        lateral jsonb_to_record(a.value) as r(
            source_id text, kind text, queue text, payload jsonb, headers jsonb, tenant text,
            idempotency_key text, reason text, category text, error_class text, message text,
            fingerprint text, attempts int, died_at timestamptz, created_at timestamptz,
            is_live boolean)
        where fresh ? r.source_id
        order by r.source_id, a.n),
    buried as (
        insert into redrive.dead_letters (
            id, redrives, queue, kind, reason, category, error_class, message, fingerprint,
            attempts, deliveries, losses, priority, lane, created_at, died_at, first_failed_at,
            tenant, idempotency_key, headers, payload)
        select c.job, 0, c.queue, c.kind, c.reason, c.category, c.error_class, c.message,
               c.fingerprint, c.attempts, c.attempts, 0, 0,
               redrive.lane_of_v1(c.queue, c.tenant),
               least(c.created_at, c.died), c.died, c.died,
               c.tenant, c.idempotency_key, c.headers, c.payload
        from came c order by c.job),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select c.queue, c.kind, e.event, case when e.event in ('dead', 'imported') then c.reason
                                              else '' end as reason, count(*)
        from came c, unnest(case when c.is_live and c.died > now() - interval '1 hour'
                                 then '{enqueued,claimed,dead}' else '{imported}' end::text[])
                     as e(event)
        group by c.queue, c.kind, e.event, 4),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'import', why, count(*),
               jsonb_build_object('source', import_v1.source, 'ids', jsonb_agg(c.job order by c.job))
        from came c)
    select c.n, c.job from came c order by c.n;
end
$$;

-- replace_waiting: apply, at commit, the replacements that a transaction asked for.
-- A waiting job gets the new payload, headers, expiry and time. The time is put off to at most
-- unique_for after the job was enqueued. A job that runs by now, or has ended, stays as it is, and
-- the new one is enqueued after it.
-- locks: as hold_waiting, during the commit, so that an open transaction holds no waiting job
-- The first call in a transaction handles all of them.
create or replace function redrive.replace_waiting() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
    ids bigint[];                -- the jobs to replace
    wishes jsonb[];              -- the last replacement of each
    waiting bigint[];
    others jsonb;                -- the jobs to enqueue
    sealed text[];
    is_blind constant boolean := current_setting('transaction_isolation') not like 'read %';
begin
    with mine as (
        delete from redrive.replacements r where r.xact = pg_current_xact_id()
        returning r.id, r.job, r.wanted),
    last as (select distinct on (m.job) m.job, m.wanted from mine m order by m.job, m.id desc)
    select array_agg(l.job order by l.job), array_agg(l.wanted order by l.job) into ids, wishes
    from last l;
    if ids is null then
        return null;
    end if;
    -- Under REPEATABLE READ a claim that was made meanwhile is invisible. Its worker loses the job
    -- by the changed `deliveries`, and the job runs again with the new payload.
    waiting := redrive.hold_waiting_v1(ids, true);
    select coalesce(array_agg(j.id), '{}') into waiting
    from redrive.jobs j where j.id = any (waiting) and j.idempotency_key is not null;
    update redrive.jobs j
    set payload = v.wanted -> 'payload', headers = v.wanted -> 'headers',
        deliveries = j.deliveries + is_blind::int,
        expires_at = clock_timestamp()
                     + (v.wanted ->> 'expires_in')::float8 * interval '1 second',
        run_at = case when j.run_at = 'infinity' then j.run_at else greatest(
            clock_timestamp(),
            least((v.wanted ->> 'run_at')::timestamptz,
                  j.created_at + (v.wanted ->> 'unique_for')::float8 * interval '1 second')) end
    from unnest(ids, wishes) as v(job, wanted)
    where j.id = v.job and j.id = any (waiting);
    select array_agg(v.wanted #>> '{headers,$redrive}') into sealed
    from unnest(ids, wishes) as v(job, wanted)
    where v.job = any (waiting) and v.wanted -> 'headers' ? '$redrive';
    if sealed is not null then
        perform redrive.admit_envelopes_v1(sealed);
    end if;
    -- A running job gives its key to the job that comes after it.
    update redrive.jobs j set idempotency_key = null
    where j.id = any (ids) and j.id <> all (waiting);
    select jsonb_agg(v.wanted) into others
    from unnest(ids, wishes) as v(job, wanted) where v.job <> all (waiting);
    if others is not null then
        perform from redrive.enqueue_many_v1(others);
    end if;
    return null;
end
$$;

do $$
begin
    if not exists (select from pg_trigger t where t.tgname = 'replacements_applied') then
        create constraint trigger replacements_applied after insert on redrive.replacements
            deferrable initially deferred for each row execute function redrive.replace_waiting();
    end if;
end
$$;

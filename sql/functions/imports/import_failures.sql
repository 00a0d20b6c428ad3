-- import_failures: store another system's records of why imported dead letters died.
-- It comes after import, in the same transaction: an encrypted record is bound to the job's new id.
-- Dead letters that another login or another transaction has imported are left out.
-- in:    parallel arrays: ids; records: {message, detail}. A dead letter that has a record keeps it
create or replace function redrive.import_failures_v1(ids bigint[], records jsonb[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    insert into redrive.failures (job, deliveries, attempt, at, worker, error_class, message,
                                  category, fingerprint, detail)
    select d.id, d.deliveries, d.attempts, d.died_at, i.source, d.error_class,
           v.record ->> 'message', d.category, d.fingerprint, coalesce(v.record -> 'detail', '{}')
    from unnest(ids, records) as v(id, record)
    join redrive.imports i on i.job = v.id
    join redrive.dead_letters d on d.id = v.id and d.redrives = 0
    where v.id in (
        select e.id::bigint
        from redrive.audit a, jsonb_array_elements_text(a.detail -> 'ids') as e(id)
        where a.action = 'import' and a.db_user = session_user and a.at >= now())
    on conflict do nothing
$$;

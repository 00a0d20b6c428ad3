-- reveal: return the stored payload of a job, wherever it is, to an operator who gives a reason.
-- Audited: the line of the log commits together with the answer.
-- out:   the payload, and the fields that an encrypted payload is bound to; no row: nothing is kept
--        of this job
-- plan:  jobs_pkey, dead_letters_pkey, history_default_id_idx
create or replace function redrive.reveal_v1(job bigint, actor text, why text)
returns table (id bigint, kind text, queue text, tenant text, idempotency_key text,
               ordering_key text, headers jsonb, payload jsonb)
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with found as materialized (
        select o.* from (
            (select 1 as place, j.id, j.kind, j.queue, j.tenant, j.idempotency_key, j.ordering_key,
                    j.headers, j.payload
             from redrive.jobs j where j.id = job)
            union all
            (select 2, d.id, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key,
                    d.headers, d.payload
             from redrive.dead_letters d where d.id = job order by d.redrives desc limit 1)
            union all
            (select 3, h.id, h.kind, h.queue, h.tenant, h.idempotency_key, h.ordering_key,
                    h.headers, h.payload
             from redrive.history h where h.id = job order by h.ended_at desc limit 1)) o
        order by o.place limit 1),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'reveal', why, 1, jsonb_build_object('ids', jsonb_build_array(f.id))
        from found f)
    select f.id, f.kind, f.queue, f.tenant, f.idempotency_key, f.ordering_key, f.headers, f.payload
    from found f
$$;

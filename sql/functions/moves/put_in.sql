-- put_in: add jobs and dead letters of another cell, as take_out wrote them. Audited.
-- It comes after take_in, in the same transaction.
-- in:    documents: a JSON array; each has its `id` in this database, and its `source_id`
-- out:   the ids of jobs that are left out: see add_documents
-- errors: RD001 'field: rule'
-- locks: the move's row, shared; then keys of jobs, as enqueue
create or replace function redrive.put_in_v1(move uuid, documents jsonb, actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    moving redrive.moves;
    strange int;
    refused bigint[];
begin
    moving := redrive.open_move_v1(put_in_v1.move, is_incoming => true);
    select count(*) into strange
    from jsonb_array_elements(documents) as g(doc)
    left join redrive.imports i on i.job = (g.doc ->> 'id')::bigint
    where (i.source, i.source_id)
          is distinct from (redrive.move_source_v1(moving.cell, moving.id), g.doc ->> 'source_id')
       or coalesce(g.doc #>> '{job,tenant}', g.doc #>> '{dead_letters,0,tenant}')
          is distinct from moving.tenant;
    if strange > 0 then
        raise exception using errcode = 'RD001',
            message = 'documents: each must have an id of take_in, and the tenant of the move';
    end if;

    refused := redrive.add_documents_v1(documents);
    insert into redrive.audit (actor, action, why, n, detail)
    select put_in_v1.actor, 'move in', put_in_v1.why, count(*),
           jsonb_build_object('ids', jsonb_agg((g.doc ->> 'id')::bigint order by g.n),
                              'move', put_in_v1.move, 'from', moving.cell,
                              'source_ids', jsonb_agg(g.doc -> 'source_id' order by g.n))
    from jsonb_array_elements(documents) with ordinality as g(doc, n)
    where (g.doc ->> 'id')::bigint <> all (refused)
    having count(*) > 0;
    return query select r.id from unnest(refused) as r(id);
end
$$;

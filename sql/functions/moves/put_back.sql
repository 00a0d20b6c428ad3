-- put_back: return jobs that a move has taken out, under their old ids. Audited, even for none.
-- The other cell has refused the move before and does not have these jobs, or it is lost.
-- in:    documents: a JSON array; each has the `id` of its job
-- out:   the ids of jobs that are left out: see add_documents
-- errors: RD001 'field: rule'
-- locks: the move's row, shared; then moved_jobs, ascending; then as add_documents
create or replace function redrive.put_back_v1(move uuid, documents jsonb, actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    moving redrive.moves;
    refused bigint[];
    given constant bigint[] := array(
        select (g.doc ->> 'id')::bigint from jsonb_array_elements(documents) as g(doc));
    held bigint[];
begin
    moving := redrive.open_move_v1(put_back_v1.move, is_incoming => false);
    held := array(select j.id from redrive.moved_jobs j
                  where j.id = any (given) and j.move = put_back_v1.move and j.data is not null
                  order by j.id for update);
    if cardinality(held) <> cardinality(given)
        or exists (select from jsonb_array_elements(documents) as g(doc)
                   where coalesce(g.doc #>> '{job,tenant}', g.doc #>> '{dead_letters,0,tenant}')
                         is distinct from moving.tenant) then
        raise exception using errcode = 'RD001', message = 'documents: each must be of a job that'
            ' this move has taken out, and have the tenant of the move';
    end if;
    refused := redrive.add_documents_v1(documents);
    delete from redrive.moved_jobs j where j.id = any (held);
    insert into redrive.audit (actor, action, why, n, detail)
    values (put_back_v1.actor, 'move back', put_back_v1.why,
            cardinality(held) - cardinality(refused),
            jsonb_build_object('ids', to_jsonb(array(
                                   select h.id from unnest(held) as h(id)
                                   where h.id <> all (refused) order by 1)),
                               'move', move, 'from', moving.cell));
    return query select r.id from unnest(refused) as r(id);
end
$$;

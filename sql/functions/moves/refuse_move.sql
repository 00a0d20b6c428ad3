-- refuse_move: end a move of another cell's jobs into this database, because it is given up there.
-- out:   source_id: a job that has come, among `ids`; id: its id here
-- locks: the move's row, which waits for take_in and put_in
-- From then on, a mover that was stopped cannot put in what it has read. Until the move has ended
-- in the other cell, which end_move reports here, its end is 'infinity': see forget_imports.
create or replace function redrive.refuse_move_v1(move uuid, tenant text, cell text, ids bigint[])
returns table (source_id bigint, id bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    refused redrive.moves;
begin
    insert into redrive.moves as m (id, tenant, cell, is_incoming, ended_at)
    values (refuse_move_v1.move, refuse_move_v1.tenant, refuse_move_v1.cell, true,
            'infinity')
    on conflict (id) do update set ended_at = excluded.ended_at
    returning * into refused;
    return query
    select i.source_id::bigint, i.job
    from redrive.imports i
    where i.source = redrive.move_source_v1(refused.cell, refused.id)
      and i.source_id = any (array(select g.id::text from unnest(ids) as g(id)))
    order by 1;
end
$$;

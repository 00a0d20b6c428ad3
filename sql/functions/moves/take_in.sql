-- take_in: give jobs of another cell their ids in this database.
-- A job that came before keeps the id that it got then.
-- out:   source_id: its id in the other cell; id; is_new: it has to be put in, in this transaction
-- errors: RD001 'move: rule'
-- locks: the move's row, shared, so that it cannot end meanwhile; then imports, by their source_id,
--        so that two movers never wait in a circle
create or replace function redrive.take_in_v1(move uuid, ids bigint[])
returns table (source_id bigint, id bigint, is_new boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    moving constant redrive.moves := redrive.open_move_v1(take_in_v1.move, is_incoming => true);
    origin constant text := redrive.move_source_v1(moving.cell, moving.id);
    fresh bigint[];
begin
    with came as (
        insert into redrive.imports (source, source_id)
        select origin, v.id::text
        from (select distinct g.id from unnest(ids) as g(id) where g.id is not null) v
        order by v.id
        on conflict do nothing
        returning job)
    select array_agg(c.job) into fresh from came c;
    return query
    select i.source_id::bigint, i.job, i.job = any (fresh) is true
    from redrive.imports i
    where i.source = origin
      and i.source_id = any (array(select g.id::text from unnest(ids) as g(id)))
    order by 1;
end
$$;

-- open_move: return a move that has not ended. It cannot end before this transaction does.
-- in:    is_incoming: the move into this cell, or else the move out of it
-- errors: RD001 'move: rule'
-- locks: the move's row, shared
create or replace function redrive.open_move_v1(move uuid, is_incoming boolean)
returns record  -- a row of redrive.moves
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    found_move redrive.moves;
begin
    select m.* into found_move from redrive.moves m
    where m.id = open_move_v1.move and m.is_incoming = open_move_v1.is_incoming
      and m.ended_at is null
    for share;
    if not found then
        raise exception using errcode = 'RD001', message = 'move: it has ended'
            || case when open_move_v1.is_incoming then ' in this cell' else '' end;
    end if;
    return found_move;
end
$$;

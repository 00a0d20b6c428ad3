-- receive_move: open a move of another cell's jobs into this database. It may be open already.
-- Until it ends, this database remembers which jobs have come, so a repeat adds nothing.
-- errors: RD001 'field: rule'
-- locks: moves, by tenant
-- A move in the other direction must have ended, or its jobs would come back. An older move into
-- this database has ended in the other cell, which has only one at a time. So it is closed here.
create or replace function redrive.receive_move_v1(move uuid, tenant text, cell text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    if exists (select from redrive.moves m
               where m.tenant = receive_move_v1.tenant and not m.is_incoming
                 and m.ended_at is null) then
        raise exception using errcode = 'RD001',
            message = 'tenant: a move of this key out of this cell has not ended; end it first';
    end if;
    if exists (select from redrive.moves m
               where m.id = receive_move_v1.move and m.ended_at is not null) then
        raise exception using errcode = 'RD001', message = 'move: it has ended in this cell;'
            ' if it was given up, run redrive cell move --give-up again';
    end if;
    update redrive.moves m set ended_at = clock_timestamp()
    where m.tenant = receive_move_v1.tenant and m.is_incoming and m.id <> receive_move_v1.move
      and (m.ended_at is null or m.ended_at = 'infinity' and m.cell = receive_move_v1.cell);
    insert into redrive.moves (id, tenant, cell, is_incoming)
    values (receive_move_v1.move, receive_move_v1.tenant, receive_move_v1.cell, true)
    on conflict (id) do nothing;
end
$$;

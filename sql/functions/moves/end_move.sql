-- end_move: end a move, in the cell that it left and then in the cell that it went to.
-- in:    is_incoming: which of the two this is
-- out:   true if it has ended; false if rows of moved jobs are left here
-- locks: the move's row, which waits for take_out, take_in and put_in
-- A stopped mover may wake later. It can no longer take out a job, and what it has read before it
-- cannot put in, although the other cell may forget which jobs have come.
create or replace function redrive.end_move_v1(move uuid, is_incoming boolean) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    perform from redrive.moves m
    where m.id = end_move_v1.move and m.is_incoming = end_move_v1.is_incoming for update;
    if exists (select from redrive.moved_jobs j
               where j.move = end_move_v1.move and j.data is not null
                 and not end_move_v1.is_incoming) then
        return false;
    end if;
    update redrive.moves m set ended_at = least(m.ended_at, clock_timestamp())
    where m.id = end_move_v1.move and m.is_incoming = end_move_v1.is_incoming;
    return true;
end
$$;

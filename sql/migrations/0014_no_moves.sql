-- Redrive no longer moves jobs between cells: docs/cells.md says how Postgres' own tools do it.
-- serves: 1

do $$
begin
    if exists (select from redrive.moved_jobs where data is not null) then
        raise exception using message = 'a move between cells has jobs that are in no cell',
            hint = 'end it with the version before: redrive cell move --give-up';
    end if;
end
$$;
drop table redrive.moves, redrive.moved_jobs, redrive.move_lock;
alter table redrive.completions drop column tenant, drop column is_moved;

drop function if exists redrive.add_documents_v1(jsonb);
drop function if exists redrive.begin_move_v1(text, text, text, text);
drop function if exists redrive.drop_moved_v1(uuid, bigint[], bigint[]);
drop function if exists redrive.end_move_v1(uuid, boolean);
drop function if exists redrive.movable_v1(text, bigint[]);
drop function if exists redrive.move_source_v1(text, uuid);
drop function if exists redrive.open_move_v1(uuid, boolean);
drop function if exists redrive.put_back_v1(uuid, jsonb, text, text);
drop function if exists redrive.put_in_v1(uuid, jsonb, text, text);
drop function if exists redrive.put_keys_v1(uuid, jsonb);
drop function if exists redrive.receive_move_v1(uuid, text, text);
drop function if exists redrive.refuse_move_v1(uuid, text, text, bigint[]);
drop function if exists redrive.take_in_v1(uuid, bigint[]);
drop function if exists redrive.take_out_v1(uuid, bigint[], text, text);

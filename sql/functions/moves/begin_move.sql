-- begin_move: begin to move a tenant's jobs to another cell, or continue a move that has not ended.
-- Audited if it begins.
-- out:   the id of the move
-- errors: RD001 'field: rule'
-- locks: moves, by tenant
create or replace function redrive.begin_move_v1(tenant text, cell text, actor text, why text)
returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    fault constant text := case
        when length(tenant) not between 1 and 255 or tenant is null
            then 'tenant: must have 1 to 255 characters'
        when (cell collate "C") !~ '^[a-z][a-z0-9_.-]{0,62}$' or cell is null
            then 'cell: must match ^[a-z][a-z0-9_.-]{0,62}$' end;
    found_move redrive.moves;
begin
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    insert into redrive.moves (id, tenant, cell, is_incoming)
    values (gen_random_uuid(), begin_move_v1.tenant, begin_move_v1.cell, false)
    on conflict (tenant, is_incoming) where ended_at is null do nothing
    returning * into found_move;
    if found then
        delete from redrive.moved_jobs m
        where m.data is null
          and m.at < clock_timestamp() - (select r.keep from redrive.retention r
                                          where r.what = 'keys');
        insert into redrive.audit (actor, action, why, n, detail)
        values (begin_move_v1.actor, 'move', begin_move_v1.why, 0, jsonb_build_object(
                    'move', found_move.id, 'tenant', begin_move_v1.tenant,
                    'to', begin_move_v1.cell));
        return found_move.id;
    end if;
    select m.* into strict found_move from redrive.moves m
    where m.tenant = begin_move_v1.tenant and not m.is_incoming and m.ended_at is null;
    if found_move.cell <> begin_move_v1.cell then
        raise exception using errcode = 'RD001', message = format(
            'cell: a move of this key to %s has not ended; run it again, or end it by --give-up',
            found_move.cell);
    end if;
    return found_move.id;
end
$$;

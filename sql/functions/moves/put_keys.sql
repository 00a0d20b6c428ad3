-- put_keys: add idempotency keys that have succeeded in another cell.
-- in:    keys: a JSON array of {kind, key, at, enqueued_at}
-- out:   how many are new
-- errors: RD001 'move: rule'
-- locks: completions, by kind and key
-- Such a key gets an id of this database, under which nothing else is on record.
create or replace function redrive.put_keys_v1(move uuid, keys jsonb) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    moving redrive.moves;
    added int;
begin
    moving := redrive.open_move_v1(put_keys_v1.move, is_incoming => true);
    insert into redrive.completions as c (kind, key, job, at, enqueued_at, tenant)
    select k.kind, k.key, nextval('redrive.jobs_id_seq'), k.at, k.enqueued_at, moving.tenant
    from jsonb_to_recordset(put_keys_v1.keys)
        as k(kind text, key text, at timestamptz, enqueued_at timestamptz)
    where not exists (select from redrive.completions o
                      where o.kind = k.kind and o.key = k.key and o.is_moved is not true)
    order by k.kind, k.key
    on conflict (kind, key) do update
    set job = excluded.job, at = excluded.at, enqueued_at = excluded.enqueued_at,
        tenant = excluded.tenant, is_moved = null
    where c.is_moved;
    get diagnostics added = row_count;
    return added;
end
$$;

-- end_left_open: end the transactions in which dead handlers were completing these deliveries.
-- The caller knows that their processes are dead. The server notices that only when it sends
-- something to them.
-- in:    parallel arrays
-- out:   the jobs whose transactions are ending
-- Not security definer: a caller may end the backends of its own role and no others.
create or replace function redrive.end_left_open_v1(ids bigint[], deliveries int[])
returns setof bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    left_open record;
begin
    for left_open in
        select v.id, l.pid from unnest(ids, deliveries) as v(id, deliveries)
        join pg_locks l
          on (l.classid::bigint << 32 | l.objid::bigint) = redrive.delivery_mark_v1(v.id, v.deliveries)
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
    loop
        begin
            if pg_terminate_backend(left_open.pid) then
                return next left_open.id;
            end if;
        exception
            when insufficient_privilege then null;  -- the backend belongs to another role
        end;
    end loop;
end
$$;

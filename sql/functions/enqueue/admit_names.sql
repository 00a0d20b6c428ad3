-- admit_names: accept new names of queues and kinds while there is room for them.
-- in:    parallel arrays; they may include known names
-- errors: RD001 'field: rule' for an invalid name, and past the limit; 55P03 if several
--        transactions bring many names at once
-- locks: a row of name_limits, skip locked. A transaction cannot see the names
--        that others are bringing, so without the lock it may bring only a few. Then all open
--        transactions together exceed the limit by at most that number each
create or replace function redrive.admit_names_v1(
    queues text[], kinds text[], priorities smallint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    few constant int := 20;
    fault text;
begin
    select case when v.kind collate "C" !~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$' then 'kind' else 'queue' end
           || ': must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
    into fault
    from unnest(queues, kinds) as v(queue, kind)
    where v.kind collate "C" !~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
       or v.queue collate "C" !~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'
    limit 1;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    insert into redrive.names (queue, kind, priority)
    select v.queue, v.kind, v.priority
    from unnest(queues, kinds, priorities) as v(queue, kind, priority)
    where (select true from redrive.names n
           where n.queue = v.queue and n.kind = v.kind and n.priority = v.priority limit 1) is null;
    if not found then
        return;
    end if;
    select format('%s: all %s allowed names are in use; use one of them, or let an'
                  ' operator run: redrive queue limit %s=N --why TEXT',
                  case u.what when 'queues' then 'queue' else 'kind' end, u.at_most, u.what)
    into fault
    from redrive.names_used_v1() u where u.used > u.at_most
    order by u.what desc limit 1;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    perform from redrive.name_limits l where l.what = 'queues' for update skip locked;
    if not found
       and (select count(*) > few from redrive.names n where n.xact = pg_current_xact_id())
    then
        raise exception using errcode = '55P03',
            message = 'queue: another transaction is adding many names too; try again';
    end if;
end
$$;

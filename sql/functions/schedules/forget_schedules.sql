-- forget_schedules: delete schedules that no live worker declares and whose last slot is past
-- retention.
-- Declarations that are in force nowhere are deleted, too.
-- locks: these rows, skip locked, before the check that decides. A worker that declares one again
--        keeps its lock until the declaration is visible. Or it waits for this transaction, and
--        inserts the row again
create or replace function redrive.forget_schedules_v1(older_than interval, batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    earliest constant timestamptz := clock_timestamp() - older_than;
    old text[];
    ids bigint[];
    gone int;
    more int;
begin
    select array_agg(p.name) into old
    from (select o.name from redrive.schedules o
          join redrive.schedule_declarations d on d.id = o.declaration
          where greatest(o.next_at, o.last_at, d.declared_at) < earliest
            and not exists (select from redrive.declared_schedules_v1() l where l.schedule = o.name)
          limit batch for update of o skip locked) p;
    delete from redrive.schedules s
    where s.name = any (old)
      and not exists (select from redrive.declared_schedules_v1() l where l.schedule = s.name);
    get diagnostics gone = row_count;
    select array_agg(p.id) into ids
    from (select o.id from redrive.schedule_declarations o
          where o.declared_at < earliest
            and not exists (select from redrive.schedules s where s.declaration = o.id)
            and not exists (select from redrive.schedule_declarers l where l.declaration = o.id)
          limit batch for update skip locked) p;
    delete from redrive.schedule_declarations d
    where d.id = any (ids) and d.declared_at < earliest
      and not exists (select from redrive.schedules s where s.declaration = d.id)
      and not exists (select from redrive.schedule_declarers l where l.declaration = d.id);
    get diagnostics more = row_count;
    return greatest(gone, more);
end
$$;

-- forget_schedules: those that no live worker has declared for so long that their last slot is past
-- retention, and declarations that are no longer in force anywhere.
-- locks: those, skip locked, before the look that decides: who declares one anew has it until that
--        can be seen, or waits for its end, and makes it anew
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

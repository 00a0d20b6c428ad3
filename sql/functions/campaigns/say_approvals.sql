-- say_approvals: record which of a worker's kinds need two people for a redrive.
-- A kind that is no longer declared as two-person is released immediately.
-- in:    kinds: all kinds that the worker handles, by full name
--        twice: the kinds among them that need two people
-- locks: the deleted rows, skip locked: if one is locked, another worker is deleting it now
create or replace function redrive.say_approvals_v1(kinds text[], twice text[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.approvals a
    where a.kind in (select o.kind from redrive.approvals o
                     where o.kind = any (kinds) and o.kind <> all (twice)
                     for update skip locked);
    insert into redrive.approvals (kind)
    select distinct t.kind from unnest(twice) as t(kind)
    where t.kind = any (kinds) order by 1
    on conflict do nothing
$$;

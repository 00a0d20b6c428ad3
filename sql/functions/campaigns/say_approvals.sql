-- say_approvals: a worker says which of the kinds that it handles need two people for a redrive. Who
-- needed two before and is said to need none any more is free at once.
-- in:    kinds: all that it handles by their full name; twice: those of them that need two
-- locks: the rows that go, skip locked: another worker deletes them at this moment
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

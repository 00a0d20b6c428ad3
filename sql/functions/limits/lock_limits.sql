-- lock_limits: lock the keys of these limits, and insert missing keys.
-- in:    names: sorted
-- out:   the names that are locked now, sorted
-- locks: the keys, in this order. It waits a moment for other claims, which are short. A key that
--        stays locked for longer is left out; for example, an operator sets the limit in an open
--        transaction
create or replace function redrive.lock_limits_v1(names text[]) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '50ms'
set jit = off
as $$
declare
    missing text;
begin
    loop
        -- not a join: planned for an empty table, it would read all keys for each name
        insert into redrive.limit_keys (name)
        select n.name from unnest(names) as n(name)
        where not exists (select from redrive.limit_keys k where k.name = n.name offset 0)
        order by 1
        on conflict do nothing;
        perform from redrive.limit_keys k where k.name = any (names) order by k.name for update;
        -- a key may have been deleted between the two statements
        exit when not exists (
            select from unnest(names) as n(name)
            where not exists (select from redrive.limit_keys k where k.name = n.name offset 0));
    end loop;
    return names;
exception
    when lock_not_available then
        -- The inserts above are rolled back. Insert the keys again, one by one, and leave out a key
        -- that another session is inserting.
        for missing in
            select n.name from unnest(names) as n(name)
            where not exists (select from redrive.limit_keys k where k.name = n.name offset 0)
            order by 1
        loop
            begin
                insert into redrive.limit_keys (name) values (missing) on conflict do nothing;
            exception
                when lock_not_available then null;
            end;
        end loop;
        return array(select k.name from redrive.limit_keys k
                     where k.name = any (names) order by k.name for update skip locked);
end
$$;

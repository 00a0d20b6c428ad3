-- forget_recovered: delete the acknowledgements of groups whose failing jobs have all ended, if no
-- dead letter is open.
-- locks: open_groups, skip locked
-- plan:  groups_pkey, jobs_failing_idx
create or replace function redrive.forget_recovered_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with pick as materialized (
        select o.fingerprint from redrive.open_groups o
        where not exists (select from redrive.groups g
                          where g.fingerprint = o.fingerprint and g.open > 0)
          and not redrive.is_failing_v1(o.fingerprint)
        limit batch for update skip locked),
    gone as (
        delete from redrive.open_groups o using pick p where o.fingerprint = p.fingerprint
        returning 1)
    select count(*)::int from gone
$$;

-- hide_messages: of groups, the message of their first failure; it is shown from a failure of
-- theirs from now on.
create or replace function redrive.hide_messages_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select redrive.fold_groups_v1();
    with pick as materialized (
        select g.fingerprint from redrive.groups g where g.message <> '[encrypted]'
        order by g.fingerprint for update),
    hidden as (
        update redrive.groups g set message = '[encrypted]'
        from pick p where g.fingerprint = p.fingerprint
        returning 1)
    select count(*)::int from hidden
$$;

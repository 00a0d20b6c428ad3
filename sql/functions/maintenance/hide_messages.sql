-- hide_messages: hide the message of each group's first failure.
-- From now on the message is shown from a failure of the group.
-- locks: the chore that folds groups: a message must not move from the deltas to the groups between
--        the two statements
-- Audited, if there were any.
create or replace function redrive.hide_messages_v1() returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select from redrive.chores c where c.name = 'fold_groups' for update;
    with pick as materialized (
        select g.fingerprint from redrive.groups g where g.message <> '[encrypted]'
        order by g.fingerprint for update),
    hidden as (
        update redrive.groups g set message = '[encrypted]'
        from pick p where g.fingerprint = p.fingerprint
        returning g.fingerprint),
    unfolded as (
        update redrive.group_deltas d set message = '[encrypted]' where d.message <> '[encrypted]'
        returning d.fingerprint),
    counted as (
        select count(*)::int as n
        from (select fingerprint from hidden union select fingerprint from unfolded) both_tables),
    audited as (
        insert into redrive.audit (actor, action, why, n)
        select session_user, 'hide messages', 'what is encrypted is not quoted', c.n
        from counted c where c.n > 0)
    select c.n from counted c
$$;

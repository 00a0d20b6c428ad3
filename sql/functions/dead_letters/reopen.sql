-- reopen: open dismissed dead letters again. Audited.
-- out:   the ids that were dismissed
-- locks: dead letters, ascending like redrive, so that two calls never wait in a circle
create or replace function redrive.reopen_v1(ids bigint[], actor text, why text)
returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with pick as materialized (
        select d.id, d.redrives from redrive.dead_letters d
        where d.id = any (ids) and d.state = 'dismissed'
        order by d.id for update),
    back as (
        update redrive.dead_letters d
        set state = 'open', settled_at = null,
            notes = d.notes
                || jsonb_build_object('at', clock_timestamp(), 'actor', actor, 'text', why)
        from pick p where d.id = p.id and d.redrives = p.redrives
        returning d.id, d.queue, d.kind, d.reason),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, 'reopened', reason, count(*) from back group by queue, kind, reason),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'reopen', why, count(*), jsonb_build_object('ids', jsonb_agg(id))
        from back having count(*) > 0)
    select id from back
$$;

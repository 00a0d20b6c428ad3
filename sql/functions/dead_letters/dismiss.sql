-- dismiss: mark dead letters as not to be fixed; the ordering keys that they held continue.
-- Audited.
-- out:   the ids that were open
-- locks: dead letters, ascending like redrive, so that two calls never wait in a circle
create or replace function redrive.dismiss_v1(ids bigint[], actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    dismissed bigint[];
    queues text[];
    keys text[];
begin
    with pick as materialized (
        select d.id, d.redrives from redrive.dead_letters d
        where d.id = any (dismiss_v1.ids) and d.state = 'open'
        order by d.id for update),
    gone as (
        update redrive.dead_letters d
        set state = 'dismissed', settled_at = clock_timestamp(),
            notes = d.notes
                || jsonb_build_object('at', clock_timestamp(), 'actor', dismiss_v1.actor,
                                      'text', dismiss_v1.why)
        from pick p where d.id = p.id and d.redrives = p.redrives
        returning d.id, d.queue, d.kind, d.reason, d.ordering_key, d.holds_key),
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select queue, kind, 'dismissed', reason, count(*) from gone group by queue, kind, reason),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select dismiss_v1.actor, 'dismiss', dismiss_v1.why, count(*), jsonb_build_object('ids', jsonb_agg(id))
        from gone having count(*) > 0)
    select array_agg(g.id), array_agg(g.queue) filter (where g.holds_key),
           array_agg(g.ordering_key) filter (where g.holds_key)
    into dismissed, queues, keys
    from gone g;
    perform redrive.wake_keys_v1(queues, keys);
    return query select d.id from unnest(dismissed) as d(id);
end
$$;

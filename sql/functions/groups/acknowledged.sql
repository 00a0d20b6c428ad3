-- acknowledged: record who works on groups with open dead letters or failing jobs; null means nobody.
-- It lasts until the group has neither of them (see track_open and forget_recovered).
-- out:   the groups that have any
-- locks: groups, ascending, so that fold_groups leaves them for a later step
create or replace function redrive.acknowledged_v1(names text[], person text, reason text)
returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    perform from redrive.groups g where g.fingerprint = any (names)
    order by g.fingerprint for no key update;
    return query
    insert into redrive.open_groups as o (fingerprint, queue, acknowledged_at, acknowledged_by,
                                          acknowledged_why)
    select g.fingerprint, redrive.queue_of_v1(g.sample),
           case when person is not null then clock_timestamp() end, person,
           case when person is not null then reason end
    from redrive.grouped g where g.fingerprint = any (names) and (g.open > 0 or redrive.is_failing_v1(g.fingerprint))
    order by g.fingerprint
    on conflict (fingerprint) do update
    set acknowledged_at = excluded.acknowledged_at, acknowledged_by = excluded.acknowledged_by,
        acknowledged_why = excluded.acknowledged_why
    returning o.fingerprint;
end
$$;

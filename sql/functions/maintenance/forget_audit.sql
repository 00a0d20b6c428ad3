-- forget_audit: delete lines of the audit log that are past their retention, oldest first.
-- The deletion itself is written to the log. It deletes whole days, because otherwise each deleted
-- line would add one. The chain continues from the last deleted line.
-- in:    batch: how many of the oldest lines to look at
-- plan:  audit_pkey
create or replace function redrive.forget_audit_v1(older_than interval, batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    gone record;
begin
    with oldest as materialized (
        select a.id, a.at, a.hash from redrive.audit a order by a.id limit batch),
    past as materialized (
        select o.id, o.at, o.hash from oldest o
        where o.id < all (select k.id from oldest k
                          where k.at >= date_trunc('day', clock_timestamp() - older_than))),
    deleted as (
        delete from redrive.audit a using past p where a.id = p.id)
    select count(*)::int as n, min(p.at) as since, max(p.at) as until, max(p.id) as last,
           (array_agg(p.hash order by p.id desc))[1] as hash
    into gone from past p;
    if gone.n > 0 then
        update redrive.audit_chain c set forgotten_id = gone.last, forgotten_hash = gone.hash
        where gone.last > c.forgotten_id;              -- else the lines are older than the chain
        insert into redrive.audit (actor, action, why, n, detail)
        select 'redrive', 'forget audit', 'retention', gone.n, jsonb_build_object(
            'since', gone.since, 'until', gone.until, 'last', c.forgotten_id)
        from redrive.audit_chain c;
    end if;
    return gone.n;
end
$$;

-- forget_audit: lines of the audit log past their retention, the oldest first. That is on record
-- itself, so by whole days: else each line forgotten would leave one.
-- in:    batch: how many of the oldest are looked at
-- plan:  audit_pkey
create or replace function redrive.forget_audit_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with gone as (
        delete from redrive.audit a
        where a.id = any (array(select o.id from redrive.audit o order by o.id limit batch))
          and a.at < date_trunc('day', clock_timestamp() - older_than)
        returning a.at),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select 'redrive', 'forget audit', 'retention', count(*),
               jsonb_build_object('since', min(g.at), 'until', max(g.at))
        from gone g having count(*) > 0)
    select count(*)::int from gone
$$;

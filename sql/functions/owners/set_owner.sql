-- set_owner: set the owner of a queue, a kind or both; a null owner removes it. Audited.
-- in:    queue, kind: a name, or '*' for all
-- locks: the end of the audit log first, as set_retention.sql
create or replace function redrive.set_owner_v1(
    queue text, kind text, owner text, contact text, actor text, why text)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, 'owner', why, 1, jsonb_build_object(
        'queue', set_owner_v1.queue, 'kind', set_owner_v1.kind, 'owner', set_owner_v1.owner,
        'contact', set_owner_v1.contact));
    delete from redrive.owners o
    where o.queue = set_owner_v1.queue and o.kind = set_owner_v1.kind;
    insert into redrive.owners (queue, kind, owner, contact)
    select set_owner_v1.queue, set_owner_v1.kind, set_owner_v1.owner, set_owner_v1.contact
    where set_owner_v1.owner is not null;
$$;

-- audit_hash: what seals a line of the audit log: it covers the line and the seal of the one before.
-- Instants as microseconds, which no setting of a session writes differently.
create or replace function redrive.audit_hash_v1(before bytea, line redrive.audit) returns bytea
language sql immutable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select sha256(before || convert_to(jsonb_build_array(
        line.id, (extract(epoch from line.at) * 1000000)::bigint, line.actor, line.db_user,
        line.action, line.why, line.n, line.detail)::text, 'UTF8'))
$$;

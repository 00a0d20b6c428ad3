-- audit_hash: compute the seal of one line of the audit log from the line and the previous seal.
-- Times are hashed as microseconds, because a session's settings cannot change that text.
create or replace function redrive.audit_hash_v1(before bytea, line redrive.audit) returns bytea
language sql immutable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select sha256(before || convert_to(jsonb_build_array(
        line.id, (extract(epoch from line.at) * 1000000)::bigint, line.actor, line.db_user,
        line.action, line.why, line.n, line.detail)::text, 'UTF8'))
$$;

-- redrive_obstacle: return why an open dead letter cannot be redriven.
-- The plan of a redrive and the redrive itself both ask this.
-- in:    kind, idempotency key, redrives and fingerprint of the dead letter; max_redrives; in v2
--        also whether it is quarantined and was not named by its id
-- out:   cause: succeeded | max_redrives | muted | conflict, in v2 also quarantined, or null
-- plan:  inlined into the caller's statement, so it costs no call. For that it must stay one SELECT
--        with the rights of its caller and without a volatile function (hence statement_timestamp).
--        Its names are bound when it is created, so no search_path can change them. It is one CASE,
--        because a value that is named twice is looked up twice
create or replace function redrive.redrive_obstacle_v1(
    kind text, idempotency_key text, redrives int, fingerprint text, max_redrives int,
    quarantined boolean)
returns table (cause text)
language sql stable
rows 1
begin atomic
    select case
        when idempotency_key is not null and exists (
            select from redrive.completions c
            where c.kind = redrive_obstacle_v1.kind and c.key = idempotency_key)
            then 'succeeded'
        when redrives >= max_redrives then 'max_redrives'
        when exists (
            select from redrive.groups g
            where g.fingerprint = redrive_obstacle_v1.fingerprint
              and g.muted_until > statement_timestamp())
            then 'muted'
        when quarantined then 'quarantined'
        when idempotency_key is not null and exists (
            select from redrive.jobs j
            where j.kind = redrive_obstacle_v1.kind
              and j.idempotency_key = redrive_obstacle_v1.idempotency_key)
            then 'conflict' end;
end;

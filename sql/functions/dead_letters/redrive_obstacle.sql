-- redrive_obstacle: why an open dead letter would stay where it is; the plan of a redrive and the
-- redrive itself ask the same.
-- in:    of the dead letter: kind, idempotency key, redrives, fingerprint; how often is enough; and
--        of v2 whether it is in quarantine and was not asked for by its id
-- out:   cause: succeeded | max_redrives | muted | conflict, of v2 also quarantined, or null
-- plan:  the planner makes it a part of the statement that asks, so it costs no call. For that it
--        must stay one SELECT without a volatile function (hence statement_timestamp) and with the
--        rights of its caller. Its names are bound when it is made: no search_path can turn them.
--        One CASE, as what is named twice is looked up twice.
create or replace function redrive.redrive_obstacle_v2(
    kind text, idempotency_key text, redrives int, fingerprint text, max_redrives int,
    quarantined boolean)
returns table (cause text)
language sql stable
rows 1
begin atomic
    select case
        when idempotency_key is not null and exists (
            select from redrive.completions c
            where c.kind = redrive_obstacle_v2.kind and c.key = idempotency_key)
            then 'succeeded'
        when redrives >= max_redrives then 'max_redrives'
        when exists (
            select from redrive.groups g
            where g.fingerprint = redrive_obstacle_v2.fingerprint
              and g.muted_until > statement_timestamp())
            then 'muted'
        when quarantined then 'quarantined'
        when idempotency_key is not null and exists (
            select from redrive.jobs j
            where j.kind = redrive_obstacle_v2.kind
              and j.idempotency_key = redrive_obstacle_v2.idempotency_key)
            then 'conflict' end;
end;

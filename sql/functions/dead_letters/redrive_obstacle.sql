-- redrive_obstacle: return why an open dead letter cannot be redriven.
-- The plan of a redrive and the redrive itself both ask this.
-- in:    columns of the dead letter; max_redrives
--        filter: of the campaign, with include_quarantined, include_invalid and repeat
-- out:   cause: succeeded | max_redrives | muted | not_imported | not_storable | not_repeatable | invalid |
--        quarantined | conflict, or null
-- not_imported: jobs of its kind are sent to a broker, and no import of that broker has brought this
--        one in. A gateway's kind is the name of its source; Celery's kinds begin with celery.
-- not_storable: admit would refuse the job for its payload or headers. The limit of the headers is that of
--        unfit_headers, less the 79 bytes of the header that a redrive adds
-- not_repeatable: its handler says that its jobs must not run twice, and nothing proves that it never
--        began. The proof is a failure with `began: false` for each of its deliveries. Only a
--        redrive by id with a confirmation of its own passes
-- invalid: nobody has edited the payload since its death, and no other version of the application is
--        there. One is there if workers of its kind are live and none runs the version that judged it.
--        Reason undecryptable does not count: the keyring is to blame, not the payload
-- plan:  inlined into the caller's statement, so it costs no call. For that it must stay one SELECT
--        with the rights of its caller and without a volatile function (hence statement_timestamp).
--        Its names are bound when it is created, so no search_path can change them. It is one CASE,
--        because a value that is named twice is looked up twice. The patterns of the kinds that
--        must not run twice, and of the kinds and versions of live workers, are found once
create or replace function redrive.redrive_obstacle_v2(
    id bigint, redrives int, kind text, idempotency_key text, fingerprint text, reason text,
    category text, version text, deliveries int, quarantined boolean, max_redrives int,
    filter jsonb)
returns table (cause text)
language sql stable
rows 1
begin atomic
    select case
        when idempotency_key is not null and exists (
            select from redrive.completions c
            where c.kind = redrive_obstacle_v2.kind
              and c.key in (idempotency_key, '$unique:done:' || redrive_obstacle_v2.id))
            then 'succeeded'
        when redrives >= max_redrives then 'max_redrives'
        when exists (
            select from redrive.groups g
            where g.fingerprint = redrive_obstacle_v2.fingerprint
              and g.muted_until > statement_timestamp())
            then 'muted'
        when (exists (select from redrive.imports i where i.source = redrive_obstacle_v2.kind)
              or starts_with(kind, 'celery.') and exists (
                  select from redrive.workers w
                  where w.lost_at is null and 'celery.*' = any (w.kinds)))
            and not exists (
                select from redrive.imports i
                where i.job = redrive_obstacle_v2.id
                  and i.source in ('celery', redrive_obstacle_v2.kind))
            then 'not_imported'
        when exists (
            select from redrive.dead_letters d
            where d.id = redrive_obstacle_v2.id and d.redrives = redrive_obstacle_v2.redrives
              and (case when jsonb_typeof(d.headers) = 'object' then octet_length(
                       (d.headers - '{attempt_traceparent,dead_traceparent}'::text[])::text) > 9137
                        else true end
                   or redrive.payload_fault(d.payload) is not null))
            then 'not_storable'
        when kind like any (coalesce((
                select array_agg(replace(replace(u.kind, '_', '\_'), '*', '%'))
                from redrive.kind_redrives u where not u.is_repeatable), '{}'))
            and not coalesce((
                select u.is_repeatable from redrive.kind_redrives u
                where redrive.handles_v1(array[u.kind], redrive_obstacle_v2.kind)
                order by length(u.kind) desc limit 1), true)
            and not (filter ? 'ids' and coalesce((filter ->> 'repeat')::boolean, false))
            and (select count(*) from redrive.failures f
                 where f.job = redrive_obstacle_v2.id and f.detail ->> 'began' = 'false')
                < deliveries
            then 'not_repeatable'
        when category = 'invalid' and reason <> 'undecryptable'
            and not coalesce((filter ->> 'include_invalid')::boolean, false)
            and not exists (
                select from redrive.edits e
                where e.job = redrive_obstacle_v2.id and e.redrives = redrive_obstacle_v2.redrives)
            -- no worker of this kind runs the version that judged it, and one runs another
            and not (
                kind like any (coalesce((
                    select array_agg(distinct replace(replace(k.kind, '_', '\_'), '*', '%'))
                    from redrive.workers w, unnest(coalesce(w.kinds, '{*}')) as k(kind)
                    where w.lost_at is null and not w.is_closed and w.version <> ''), '{}'))
                and not coalesce(version, '') || ' ' || kind like any (coalesce((
                    select array_agg(distinct
                        regexp_replace(w.version, '([\\%_])', '\\\1', 'g') || ' '
                        || replace(replace(k.kind, '_', '\_'), '*', '%'))
                    from redrive.workers w, unnest(coalesce(w.kinds, '{*}')) as k(kind)
                    where w.lost_at is null and not w.is_closed), '{}')))
            then 'invalid'
        when quarantined and not filter ? 'ids'
            and not coalesce((filter ->> 'include_quarantined')::boolean, false)
            then 'quarantined'
        when idempotency_key is not null and exists (
            select from redrive.jobs j
            where j.kind = redrive_obstacle_v2.kind
              and j.idempotency_key = redrive_obstacle_v2.idempotency_key)
            then 'conflict' end;
end;

-- read_marks: list what changed in a period, as marks for a time axis.
-- They come from the audit log, which says what people and campaigns did, and from the marks of
-- deploys, lost workers, breakers and schedules. Nobody's reasons are shown. A person is shown only
-- to a role that may read the audit log, which a viewer may not.
-- in:    since, until: the period
--        of_queue, of_kind: leave out what is known to be about others; null: all
--        most: how many, the latest
-- out:   what: deploy | worker lost | campaign | pause | breaker | limit | edit | purge | schedule
--        action: in words, such as 'pause redrive'
--        name: of the version, worker, campaign, queue, breaker, limit or schedule, or null
--        actor: null if nobody did it, or if the role may not read the audit log
--        n: how many jobs or dead letters it was about, or null
--        line: in the audit log, or null
--        queues, kinds: what it is about; null: all, or unknown
-- plan:  audit_marks_idx, marks_at_idx, in their order, so that a read ends with its last mark
create or replace function redrive.read_marks_v1(
    since timestamptz, until timestamptz, of_queue text, of_kind text, most int)
returns table (at timestamptz, what text, action text, name text, actor text, n int, line bigint,
               queues text[], kinds text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- current_user is the owner here, and SET ROLE does not change session_user
    with reader as materialized (
        select has_table_privilege(
            coalesce(nullif(current_setting('role'), 'none'), session_user::text),
            'redrive.audit', 'select') as reads_audit),
    -- the filters come before the limits, so that a quiet queue finds its marks among others
    found as (
        (select a.at,
                case w.word when 'redrive' then 'campaign' when 'resume' then 'pause'
                            else w.word end as what, a.action,
                coalesce(a.detail ->> 'campaign', a.detail ->> 'queue', a.detail ->> 'breaker',
                         -- the key of a limit may be a value of a payload
                         case when (select r.reads_audit from reader r) then a.detail ->> 'name'
                              else regexp_replace(a.detail ->> 'name', ':.*', ':*') end,
                         a.detail ->> 'schedule') as name,
                case when (select r.reads_audit from reader r) then a.actor end as actor, a.n,
                a.id as line, b.queues, b.kinds
         from redrive.audit a
         cross join lateral (select substring(a.action from '[a-z]+$') as word) w
         left join lateral (
             select o.plan from redrive.campaigns o
             where o.id = (a.detail ->> 'campaign')::bigint limit 1) c on true
         left join lateral (  -- the edited dead letters are of one kind
             select o.queue, o.kind from redrive.dead_letters o
             where a.action = 'edit' and o.id = (a.detail -> 'ids' ->> 0)::bigint limit 1) l on true
         left join lateral (
             select d.queue, d.kind from redrive.schedules o
             join redrive.schedule_declarations d on d.id = o.declaration
             where a.detail ? 'schedule' and o.name = a.detail ->> 'schedule' limit 1) s on true
         cross join lateral (
             select coalesce(redrive.names_in_v1(a.detail -> 'queue'),
                             redrive.names_in_v1(c.plan -> 'queues'),
                             redrive.names_in_v1(a.detail -> 'filter' -> 'queue'),
                             case when l.queue is not null then array[l.queue] end,
                             case when s.queue is not null then array[s.queue] end) as queues,
                    coalesce(redrive.names_in_v1(c.plan -> 'kinds'),
                             redrive.names_in_v1(a.detail -> 'filter' -> 'kind'),
                             case when l.kind is not null then array[l.kind] end,
                             case when s.kind is not null then array[s.kind] end,
                             case when a.detail ? 'breaker' then
                                 redrive.kinds_behind_v1(a.detail ->> 'breaker') end) as kinds) b
         where a.at >= read_marks_v1.since and a.at < read_marks_v1.until
           and a.action in (  -- the same list as in audit_marks_idx
               'redrive', 'end redrive', 'abort redrive', 'cancel redrive', 'pause redrive',
               'resume redrive', 'pause', 'resume', 'force breaker', 'reset breaker',
               'set limit', 'remove limit', 'edit', 'purge', 'pause schedule',
               'resume schedule', 'run schedule')
           and (of_queue is null or b.queues is null or of_queue = any (b.queues))
           and (of_kind is null or b.kinds is null or redrive.handles_v1(b.kinds, of_kind))
         order by a.at desc limit read_marks_v1.most)
        union all
        (select m.at, split_part(m.what, ' ', 1), m.what, m.name, null, null, null, m.queues,
                m.kinds
         from redrive.marks m
         where m.at >= read_marks_v1.since and m.at < read_marks_v1.until
           and (of_queue is null or m.queues is null or of_queue = any (m.queues))
           and (of_kind is null or m.kinds is null or redrive.handles_v1(m.kinds, of_kind))
         order by m.at desc limit read_marks_v1.most))
    select f.at, f.what, f.action, f.name, f.actor, f.n, f.line, f.queues, f.kinds
    from (select * from found f order by f.at desc limit read_marks_v1.most) f
    order by f.at, f.line
$$;

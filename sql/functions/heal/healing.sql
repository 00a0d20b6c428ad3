-- healing: list open groups of bugs and invalid payloads, and groups whose jobs fail, and whether heal
-- will try each of them.
-- Heal tries a group with the version that the workers of its kind run. Heal and its preview both
-- call this.
-- in:    kinds: only these; null: all
-- out:   cause: null: it will be tried; else why not: no_policy | approval | rollout | newer | over
--        | same_version | muted | paused
create or replace function redrive.healing_v1(kinds text[])
returns table (
    fingerprint text, kind text, category text, open bigint, first_seen timestamptz, version text,
    canaries int, max_rate float8, cause text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with running as materialized (
        -- for each kind the latest version that heals and that a worker runs
        select distinct on (h.kind) h.*,
               exists (select from redrive.workers w
                       where w.lost_at is null and w.version <> h.version
                         and redrive.handles_v1(w.kinds, h.kind)) as rolls
        from redrive.heals h
        where (kinds is null or h.kind = any (kinds))
          and exists (select from redrive.workers w
                      where w.lost_at is null and w.version = h.version
                        and redrive.handles_v1(w.kinds, h.kind))
        order by h.kind, h.first_at desc)
    select g.fingerprint, g.kind, g.category, g.open, g.first_seen, r.version, r.canaries,
           r.max_rate,
           case when r.kind is null then 'no_policy'
                -- two people decide about these kinds
                when exists (select from redrive.approvals a where a.kind = g.kind) then 'approval'
                when r.rolls then 'rollout'
                when g.first_seen >= r.first_at then 'newer'
                when r.ended_at is not null or g.fingerprint <= r.place then 'over'
                when g.versions ? r.version then 'same_version'
                when g.muted_until >= statement_timestamp() then 'muted'
                -- an operator has paused it
                when exists (select from redrive.campaigns c
                             where c.state = 'paused' and c.planned_by = 'heal'
                               and c.filter ->> 'group' = g.fingerprint) then 'paused' end
    from redrive.grouped g left join running r on r.kind = g.kind
    where (g.category in ('bug', 'invalid') and g.open > 0
           or redrive.is_failing_v1(g.fingerprint))
      and (kinds is null or g.kind = any (kinds))
    order by g.fingerprint
$$;

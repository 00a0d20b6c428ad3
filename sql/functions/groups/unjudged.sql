-- unjudged: list resolved groups that died since their versions were last compared with the fix.
-- in:    batch: at most so many
-- plan:  groups_unjudged_idx
create or replace function redrive.unjudged_v1(batch int)
returns table (fingerprint text, fixed_in text[], resolved_at timestamptz, since jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select g.fingerprint, g.fixed_in, g.resolved_at, g.since
    from redrive.groups g where g.is_unjudged order by g.fingerprint limit batch
$$;

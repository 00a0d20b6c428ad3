-- open_campaign: begin the record of a redrive in chunks.
-- The audit log is written before the first job moves.
-- out:   the campaign's id
create or replace function redrive.open_campaign_v1(
    actor text, why text, filter jsonb, rate float8, matched int)
returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with opened as (
        insert into redrive.campaigns (actor, why, filter, rate, matched)
        values (actor, why, filter, rate, matched) returning id),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'redrive', why, matched,
               jsonb_build_object('campaign', id, 'filter', filter, 'rate', rate)
        from opened)
    select id from opened
$$;

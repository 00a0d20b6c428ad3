-- supersede_heals: end the heals of older versions, because all workers of this kind run a newer
-- one.
-- The campaigns of older versions are cancelled, and what they have not released is tried again.
-- Audited.
-- locks: heals, then as cancel_campaign
create or replace function redrive.supersede_heals_v1(kind text, version text, since timestamptz)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    older bigint;
begin
    update redrive.heals h set ended_at = clock_timestamp()
    where h.kind = supersede_heals_v1.kind and h.first_at < since and h.ended_at is null;
    for older in
        select c.id from redrive.campaigns c
        where c.state in ('waiting', 'canary', 'ramp', 'running') and c.planned_login is not null
          and c.planned_by = 'heal' and c.filter -> 'kind' ? supersede_heals_v1.kind
          and c.conditions ->> 'version' is distinct from '===' || supersede_heals_v1.version
        order by c.id
    loop
        perform redrive.cancel_campaign_v1(
            older, 'heal', format('version %s is there', supersede_heals_v1.version));
    end loop;
end
$$;

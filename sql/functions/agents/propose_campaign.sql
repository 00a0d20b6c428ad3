-- propose_campaign: freeze the plan of a redrive that a person may start within a day. Audited.
-- An agent cannot confirm obstacles: the fields of the filter that do so are ignored.
-- in:    as plan_campaign
-- out:   as plan_campaign
create or replace function redrive.propose_campaign_v1(
    filter jsonb, max_redrives int, agent text, person text, why text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    proposer text := redrive.agent_name_v1(agent, person);
    report jsonb;
begin
    report := redrive.plan_campaign_v1(
        filter - array['include_quarantined', 'include_invalid', 'repeat'], max_redrives, proposer);
    if report -> 'plan' <> 'null' then
        update redrive.campaigns c set proposed_by = proposer, why = propose_campaign_v1.why
        where c.id = (report ->> 'plan')::bigint;
        insert into redrive.audit (actor, action, why, n, detail)
        values (proposer, 'propose redrive', why, (report ->> 'matched')::int,
                jsonb_build_object('campaign', report -> 'plan'));
    end if;
    return report;
end
$$;

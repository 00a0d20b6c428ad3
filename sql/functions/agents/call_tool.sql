-- call_tool: record that an agent calls a tool, and charge the budget of its token. Audited.
-- The first call that a budget refuses is audited, too. Later ones are not: an agent that goes on
-- would fill the log.
-- in:    agent, person: the agent's name, and the person or token it works for; the person's
--        name is the key of the budget, because the agent chooses its own name
--        arguments: what the log keeps of the arguments
--        most_calls, most_proposals: how many are allowed in an hour
-- out:   null: the call is allowed; else 'calls' or 'proposals', whichever budget is used up
-- locks: the token's budget, then the end of the audit log
create or replace function redrive.call_tool_v1(
    agent text, person text, tool text, arguments jsonb, most_calls int, most_proposals int)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    b redrive.agent_budgets;
    refused text;
    is_first boolean;
begin
    insert into redrive.agent_budgets (token) values (person) on conflict do nothing;
    select * into b from redrive.agent_budgets o where o.token = person for update;
    if b.since < clock_timestamp() - interval '1 hour' then
        b.since := clock_timestamp();
        b.calls := 0;
        b.proposals := 0;
    end if;
    refused := case when b.calls >= most_calls then 'calls'
                    when tool like 'propose%' and b.proposals >= most_proposals then 'proposals'
               end;
    is_first := case refused when 'calls' then b.calls = greatest(most_calls, 0)
                             when 'proposals' then b.proposals = most_proposals
                             else true end;
    if not is_first then
        return refused;
    end if;
    -- The refused call counts, too, so that it is the only one.
    b.calls := b.calls + (refused is distinct from 'proposals')::int;
    b.proposals := b.proposals + (tool like 'propose%' and refused is distinct from 'calls')::int;
    update redrive.agent_budgets o
    set since = b.since, calls = b.calls, proposals = b.proposals where o.token = person;
    insert into redrive.audit (actor, action, why, n, detail)
    values (redrive.agent_name_v1(agent, person), 'call', 'tool ' || tool, 1,
            jsonb_build_object('tool', tool, 'arguments', arguments)
            || case when refused is null then '{}'
                    else jsonb_build_object('refused', refused) end);
    return refused;
end
$$;

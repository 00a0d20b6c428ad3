-- propose: keep a change that a person may start within a day. Audited.
-- Nothing else changes. Proposals older than 30 days are deleted here, so they need no chore.
-- in:    detail: see redrive.proposals. A patch may only add, remove and replace: the other
--        operations compare or copy values of a payload, and so could reveal them
-- out:   the id of the proposal
--        A patch of an encrypted payload is refused, because it would be kept in the clear
-- errors: RD001 'patch: rule', 'ids: rule', 'seconds: rule', 'proposal: rule'
create or replace function redrive.propose_v1(
    action text, agent text, person text, why text, detail jsonb)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    most constant int := 5000;        -- of one login in a day
    most_of_one constant int := 1000;  -- of one person in a day, of all that a server's login makes
    most_bytes constant int := 16384;
    proposer text := redrive.agent_name_v1(agent, person);
    made bigint;
begin
    if action = 'edit' and (
        jsonb_typeof(detail -> 'patch') is distinct from 'array'
        or exists (select from jsonb_array_elements(detail -> 'patch') o
                   where (o ->> 'op' in ('add', 'remove', 'replace')) is not true)) then
        raise exception using errcode = 'RD001',
            message = 'patch: must be a list of add, remove and replace';
    end if;
    if octet_length((detail -> 'patch')::text) > most_bytes then
        raise exception using errcode = 'RD001', message = format(
            'patch: must have at most %s bytes, because a person has to read it', most_bytes);
    end if;
    if action = 'edit' and (
        jsonb_typeof(detail -> 'ids') is distinct from 'array'
        or exists (select from jsonb_array_elements(detail -> 'ids') i
                   where i::text !~ '^[0-9]{1,18}$')) then
        raise exception using errcode = 'RD001', message = 'ids: must be a list of whole numbers';
    end if;
    if action = 'edit' and exists (
        select from redrive.dead_letters d
        where d.id in (select i::bigint from jsonb_array_elements(detail -> 'ids') i)
          and d.payload ? '$redrive') then
        raise exception using errcode = 'RD001',
            message = 'patch: would be kept in the clear, and a payload is encrypted; let a person edit it';
    end if;
    if action = 'mute' and (detail ->> 'seconds')::float8 between 1 and 31536000 is not true then
        raise exception using errcode = 'RD001',
            message = 'seconds: must lie between 1 and a year of them';
    end if;
    if (select count(*) from redrive.proposals p
        where p.login = session_user and p.created_at > clock_timestamp() - interval '1 day')
       >= most then
        raise exception using errcode = 'RD001', message = format(
            'proposal: this login has made %s in a day', most);
    end if;
    if (select count(*) from redrive.proposals p
        where p.login = session_user and p.created_at > clock_timestamp() - interval '1 day'
          and split_part(p.proposed_by, '"', 4) = split_part(proposer, '"', 4)) >= most_of_one then
        raise exception using errcode = 'RD001', message = format(
            'proposal: the agents of this person have made %s in a day', most_of_one);
    end if;
    delete from redrive.proposals p where p.created_at < clock_timestamp() - interval '30 days';
    insert into redrive.proposals (action, proposed_by, why, detail)
    values (action, proposer, why, detail) returning id into made;
    insert into redrive.audit (actor, action, why, n, detail)
    values (proposer, 'propose ' || action, why, 1, jsonb_build_object('proposal', made));
    return made;
end
$$;

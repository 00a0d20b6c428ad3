-- propose: keep an edit or a mute that a person may start within a day. Audited.
-- Nothing else changes. Proposals older than 30 days are deleted here, so they need no chore.
-- in:    detail: see redrive.proposals
-- out:   the id of the proposal
create or replace function redrive.propose_v1(
    action text, agent text, person text, why text, detail jsonb)
returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.proposals p where p.created_at < clock_timestamp() - interval '30 days';
    with made as (
        insert into redrive.proposals (action, proposed_by, why, detail)
        values (propose_v1.action, redrive.agent_name_v1(propose_v1.agent, propose_v1.person),
                propose_v1.why, propose_v1.detail)
        returning *),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select m.proposed_by, 'propose ' || m.action, m.why, 1,
               jsonb_build_object('proposal', m.id)
        from made m)
    select m.id from made m
$$;

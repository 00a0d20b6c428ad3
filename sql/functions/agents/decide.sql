-- decide: start or reject a proposal, once. Audited. A started mute takes effect here. The caller
-- makes the other changes, which write lines of their own, too: an edit in the same transaction.
-- in:    why: reason of the person, with the name of the proposer
-- out:   action, detail: see redrive.proposals
-- errors: RD001 'proposal: rule'
-- locks: the proposal, then as mute, or the end of the audit log
create or replace function redrive.decide_v1(
    proposal bigint, is_started boolean, actor text, why text,
    out action text, out detail jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    p redrive.proposals;
begin
    select * into p from redrive.proposals o where o.id = proposal for update;
    if p.state = 'open' and p.created_at < clock_timestamp() - interval '1 day' then
        p.state := 'older than a day';
    end if;
    if p.state is distinct from 'open' then
        raise exception using errcode = 'RD001', message = format(
            'proposal: %s is %s', proposal, coalesce(p.state, 'not found'));
    end if;
    update redrive.proposals o
    set state = case when is_started then 'started' else 'rejected' end,
        decided_at = clock_timestamp(), decided_by = actor
    where o.id = p.id;
    action := p.action;
    detail := p.detail;
    if not is_started or p.action <> 'mute' then
        insert into redrive.audit (actor, action, why, n, detail)
        values (actor, case when is_started then 'start proposal' else 'reject proposal' end, why,
                1, jsonb_build_object('proposal', p.id, 'proposed_by', p.proposed_by));
    elsif not redrive.mute_v1(
        p.detail ->> 'group',
        clock_timestamp() + make_interval(secs => (p.detail ->> 'seconds')::float8), actor, why)
    then
        raise exception using errcode = 'RD001', message = 'proposal: its group is not found';
    end if;
end
$$;

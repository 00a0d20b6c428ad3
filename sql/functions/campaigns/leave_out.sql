-- leave_out: mark dead letters of a plan as invalid, because their handlers could not take them.
-- The plan must not be started yet. A marked dead letter keeps its place in the list, and the
-- campaign's steps pass over it.
-- in:    places: the column n of each; causes: the cause of each, which quotes no payload
-- out:   how many were marked; a dead letter that was marked before is not counted again
-- errors: RD001 'plan: rule', also if another login made the plan
-- locks: the campaign
-- plan:  campaign_jobs_pkey
create or replace function redrive.leave_out_v1(plan bigint, places int[], causes text[])
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    c redrive.campaigns;
    gone int;
    more jsonb;
begin
    select * into c from redrive.campaigns o
    where o.id = leave_out_v1.plan and o.planned_login is not null for update;
    if c.planned_login <> session_user then
        raise exception using errcode = 'RD001', message = format(
            'plan: only %s, who made it, may leave dead letters out of it', c.planned_login);
    end if;
    if c.state is distinct from 'planned' then
        raise exception using errcode = 'RD001', message = format(
            'plan: %s is %s; make a new plan', leave_out_v1.plan, coalesce(c.state, 'not found'));
    end if;
    with out as (
        update redrive.campaign_jobs j set state = 'invalid'
        from unnest(leave_out_v1.places, leave_out_v1.causes) as p(n, cause)
        where j.campaign = c.id and j.n = any (leave_out_v1.places) and j.n = p.n
          and j.state is null
        returning p.cause)
    select coalesce(sum(k.n), 0), coalesce(jsonb_agg(jsonb_build_array(k.cause, k.n)), '[]')
    into gone, more
    from (select o.cause, count(*) as n from out o group by o.cause) k;
    update redrive.campaigns o
    set plan = c.plan || jsonb_build_object('invalid', (
        select coalesce(jsonb_object_agg(k.cause, k.n), '{}')
        from (select e.key as cause, sum(e.value::int) as n
              from (select * from jsonb_each_text(coalesce(c.plan -> 'invalid', '{}'))
                    union all select m ->> 0, m ->> 1 from jsonb_array_elements(more) m) e
              group by e.key) k))
    where o.id = c.id;
    return gone;
end
$$;

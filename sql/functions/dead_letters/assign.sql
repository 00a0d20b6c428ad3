-- assign: set the owner of dead letters; an empty owner removes it. Audited.
-- An owner acknowledges the groups of these dead letters, unless somebody has already done so.
-- out:   the ids that were open
-- locks: dead letters, ascending like redrive, so that two calls never wait in a circle; then
--        their groups, as acknowledged.sql
-- errors: RD001 'owner: rule'
create or replace function redrive.assign_v1(ids bigint[], owner text, actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    done bigint[];
    unseen text[];
begin
    if length(assign_v1.owner) > 255 then
        raise exception using errcode = 'RD001',
            message = 'owner: must have at most 255 characters';
    end if;
    with pick as materialized (
        select d.id, d.redrives from redrive.dead_letters d
        where d.id = any (ids) and d.state = 'open'
        order by d.id for update),
    assigned as (
        update redrive.dead_letters d set owner = nullif(assign_v1.owner, '')
        from pick p where d.id = p.id and d.redrives = p.redrives
        returning d.id, d.fingerprint),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'assign', why, count(*),
               jsonb_build_object('ids', jsonb_agg(a.id), 'owner', nullif(assign_v1.owner, ''))
        from assigned a having count(*) > 0)
    select array_agg(a.id), array_agg(distinct a.fingerprint) filter (where not exists (
               select from redrive.open_groups o
               where o.fingerprint = a.fingerprint and o.acknowledged_at is not null))
    into done, unseen
    from assigned a;
    if assign_v1.owner <> '' then
        perform redrive.acknowledged_v1(unseen, assign_v1.owner, why);
    end if;
    return query select d.id from unnest(done) as d(id);
end
$$;

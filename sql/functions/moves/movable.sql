-- movable: list a tenant's live jobs and open dead letters, and say which of them stay.
-- in:    ids: look at these alone; null: at all
-- out:   what: job | dead letter
--        stays: running | batch | campaign; null: it can be moved. A batch and a campaign count
--        their jobs in this database. If such a job has an ordering key, all jobs of the key stay,
--        except for running ones, which end here anyway
-- plan:  without ids it reads all jobs and all dead letters, because no index has the tenant
create or replace function redrive.movable_v1(tenant text, ids bigint[] default null)
returns table (id bigint, what text, queue text, ordering_key text, stays text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with claimed as materialized (
        select c.id from redrive.claims k cross join lateral unnest(k.ids) as c(id)),
    planned as materialized (
        select c.id from redrive.in_campaign_v1(array(
            select d.id from redrive.dead_letters d
            where d.tenant = movable_v1.tenant and d.state = 'open'
              and (movable_v1.ids is null or d.id = any (movable_v1.ids)))) c),
    mine as (
        select j.id, 'job' as what, j.queue, j.ordering_key,
               case when j.batch is not null or j.headers ? 'batch' and exists (
                        select from redrive.batches b
                        where b.over_at is null and j.id in (b.on_success, b.on_end)) then 'batch'
                    when j.redrives > 0 and exists (
                        select from redrive.dead_letters d
                        join redrive.campaigns c on c.id = d.campaign
                        where d.id = j.id and d.redrives = j.redrives - 1
                          and c.planned_login is not null
                          and (c.state in ('waiting', 'canary', 'ramp', 'running')
                               or c.redriven > c.succeeded + c.dead_again + c.cancelled))
                        then 'campaign'
                    when j.id in (select c.id from claimed c)
                      or exists (select from redrive.cancellations c where c.job = j.id)
                        then 'running' end as stays
        from redrive.jobs j
        where j.tenant = movable_v1.tenant
          and (movable_v1.ids is null or j.id = any (movable_v1.ids))
        union all
        select d.id, 'dead letter', d.queue, d.ordering_key,
               case when d.batch is not null then 'batch'
                    when d.id in (select p.id from planned p) then 'campaign' end
        from redrive.dead_letters d
        where d.tenant = movable_v1.tenant and d.state = 'open'
          and (movable_v1.ids is null or d.id = any (movable_v1.ids)))
    select m.id, m.what, m.queue, m.ordering_key,
           coalesce(m.stays, case when m.ordering_key is not null then
               max(m.stays) filter (where m.stays <> 'running')
                   over (partition by m.queue, m.ordering_key) end)
    from mine m
    order by m.id;
end
$$;

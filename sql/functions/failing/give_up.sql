-- give_up: turn failing jobs that wait for another attempt into dead letters. Audited.
-- A job that is running, or that has ended, is left out.
-- out:   the ids of the new dead letters
-- locks: as hold_waiting; then the next jobs of their ordering keys, skip locked
-- plan:  jobs_pkey, failures_pkey, dead_letters_pkey
create or replace function redrive.give_up_v1(ids bigint[], actor text, why text)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    waiting bigint[];
    ended bigint[];
    queues text[];         -- of the jobs whose ordering keys continue
    keys text[];
begin
    waiting := redrive.hold_waiting_v1(give_up_v1.ids, true);
    with gone as (
        delete from redrive.jobs j where j.id = any (waiting) and j.failed_at is not null
        returning j.*),
    buried as (
        insert into redrive.dead_letters (
            id, redrives, queue, kind, reason, category, error_class, message, fingerprint,
            attempts, deliveries, losses, max_attempts, priority, lane, created_at,
            first_failed_at, expires_at, tenant, ordering_key, idempotency_key, headers, payload,
            batch, environment, version, holds_key, quarantined)
        select g.id, g.redrives, g.queue, g.kind, 'gave_up', coalesce(f.category, 'other'),
               coalesce(f.error_class, ''), coalesce(f.message, ''), coalesce(g.fingerprint, ''),
               g.attempt, g.deliveries, g.losses, g.max_attempts, g.priority,
               greatest(g.lane, ~g.lane), g.created_at,
               coalesce((select min(o.at) from redrive.failures o where o.job = g.id), g.failed_at),
               g.expires_at, g.tenant, g.ordering_key, g.idempotency_key, g.headers, g.payload,
               g.batch, f.detail ->> 'environment', f.detail ->> 'version',
               case when g.ordering_key is not null
                    then nullif(redrive.holds_key_v1(g.kind), false) end,
               case when g.redrives > 0 then nullif(redrive.repeats_v1(
                   g.id, g.redrives, g.fingerprint, f.category), false) end
        from gone g
        left join lateral (
            select o.category, o.error_class, o.message, o.detail from redrive.failures o
            where o.job = g.id order by o.deliveries desc limit 1) f on true
        returning id, queue, ordering_key, holds_key),
    dead_again as (
        update redrive.dead_letters d set outcome = 'dead_again'
        where d.state is not distinct from 'redriven'
          and d.id = any (array(select g.id from gone g where g.redrives > 0))
          and ((d.id, d.redrives) in (select g.id, g.redrives - 1 from gone g)) is true),
    batched as (
        insert into redrive.batch_deltas (batch, dead)
        select g.batch, count(*) from gone g where g.batch is not null group by g.batch),
    -- Count them as claimed, too: the numbers of waiting and running jobs come from these sums.
    counted as (
        insert into redrive.deltas (queue, kind, event, reason, n)
        select g.queue, g.kind, e.event, e.reason, count(*)
        from gone g
        cross join (values ('claimed', ''), ('dead', 'gave_up')) as e(event, reason)
        group by g.queue, g.kind, e.event, e.reason
        union all
        select g.queue, g.kind, 'outcome', 'dead_again', count(*) from gone g
        where g.redrives > 0 group by g.queue, g.kind)
    select coalesce(array_agg(b.id order by b.id), '{}'),
           array_agg(b.queue) filter (where b.ordering_key is not null and b.holds_key is not true),
           array_agg(b.ordering_key)
               filter (where b.ordering_key is not null and b.holds_key is not true)
    into ended, queues, keys from buried b;
    delete from redrive.limit_waits w where w.job = any (ended);
    perform redrive.wake_keys_v1(queues, keys);
    insert into redrive.audit (actor, action, why, n, detail)
    select give_up_v1.actor, 'give up', give_up_v1.why, cardinality(ended),
           jsonb_build_object('ids', to_jsonb(ended))
    where cardinality(ended) > 0;
    return query select e.id from unnest(ended) as e(id);
end
$$;

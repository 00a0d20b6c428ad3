-- failing_figures: return figures about jobs that fail now, and about their causes.
-- in:    before: an earlier result, which is returned again for 15 seconds; null: none
--        queues, pairs: the names that are shown; all others are counted as 'other'
-- out:   jobs: queue, kind, category, number
--        causes: queue, kind, category, group, first failure: of each kind the cause with most
--        jobs; at most 200
--        behind: kind, breaker: its jobs wait, because this breaker is open
create or replace function redrive.failing_figures_v1(before jsonb, queues text[], pairs jsonb)
returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    now_seconds constant float8 := extract(epoch from clock_timestamp());
    most_jobs constant int := 200000;
    most_causes constant int := 200;
begin
    if (before ->> 'taken_at')::float8 between now_seconds - 15 and now_seconds then
        return before;
    end if;
    return (
        with found as materialized (
            select coalesce(q.queue, 'other') as queue, coalesce(p.kind, 'other') as kind,
                   coalesce(f.category, 'other') as category, f.fingerprint, f.failing, f.since,
                   p.kind is not null as is_shown
            from redrive.failing_v1(most_jobs) f
            left join unnest(queues) as q(queue) on q.queue = f.queue
            left join (select p ->> 0 as queue, p ->> 1 as kind
                       from jsonb_array_elements(pairs) p) p
                on p.queue = f.queue and p.kind = f.kind),
        causes as materialized (
            select * from (
                select distinct on (f.queue, f.kind) f.* from found f
                where f.is_shown and f.since is not null
                  -- an alert tells people to type it; only a forged one has other characters
                  and f.fingerprint collate "C" ~ '^[0-9A-Za-z]{1,64}$'
                order by f.queue, f.kind, f.failing desc, f.fingerprint) f
            order by f.failing desc limit most_causes)
        select jsonb_build_object(
            'taken_at', now_seconds,
            'jobs', (select coalesce(jsonb_agg(jsonb_build_array(
                         n.queue, n.kind, n.category, n.failing)), '[]')
                     from (select f.queue, f.kind, f.category, sum(f.failing) as failing
                           from found f group by 1, 2, 3) n),
            'causes', (select coalesce(jsonb_agg(jsonb_build_array(
                           c.queue, c.kind, c.category, c.fingerprint,
                           extract(epoch from c.since)::float8)), '[]')
                       from causes c),
            'behind', (select coalesce(jsonb_agg(jsonb_build_array(k.kind, b.name)), '[]')
                       from (select o.name, redrive.kinds_behind_v1(o.name) as kinds
                             from redrive.breakers o where o.state = 'open') b
                       join (select distinct f.kind from found f where f.is_shown) k
                           on redrive.handles_v1(b.kinds, k.kind))));
end
$$;

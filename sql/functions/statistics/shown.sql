-- shown: choose the names that the figures show one by one; all others are counted as 'other'.
-- It shows at most 500 kinds, 3,000 pairs of queue and kind, and 1,000 queues, besides those with
-- objectives of their own. A name that the previous snapshot showed stays shown for as long as it
-- is known. New names get the rest of the room, the fullest queue first.
-- in:    before: the names of the previous snapshot
-- out:   kinds, queues, pairs; folded: some queues are 'other'
--        bases: the counts of queues from the time when they were 'other' and that are shown now.
--        These counts stay with 'other'. So no counter steps down, and none begins with old counts,
--        which an alert would take for growth
create or replace function redrive.shown_v1(before jsonb) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
declare
    chosen_kinds text[];
    chosen_queues text[];
    folded boolean;
    pairs jsonb;
    bases jsonb;
begin
    select coalesce(array_agg(k.kind order by k.place, k.kind), '{}') into chosen_kinds
    from (select t.kind, min(o.place) as place, count(c.kind) > 0 as is_own,
                 row_number() over (order by min(o.place), t.kind) as nth
          from (select kind from redrive.tallies union select kind from redrive.deltas) t
          left join jsonb_array_elements_text(coalesce(before -> 'kinds', '[]'))
              with ordinality as o(kind, place)
              on o.kind = t.kind
          left join redrive.kind_objectives c on c.kind = t.kind
          where t.kind <> ''
          group by t.kind) k
    where k.place is not null or k.is_own or k.nth <= 500;

    with own as (select o.queue from redrive.objectives o where o.queue <> '*'
                 union select o.queue from redrive.kind_objectives o where o.queue <> '*'),
    known as (
        select n.queue, max(n.live) as live
        from (select t.queue, sum(case when t.event in ('enqueued', 'redriven') then t.n
                                       when t.event in ('completed', 'cancelled', 'dead') then -t.n
                                       end) as live
              from redrive.totals t group by t.queue
              union all select q.queue, 0 from redrive.queues q
              union all select o.queue, 0 from own o) n
        group by n.queue),
    placed as (
        select k.queue, b.queue is not null or o.queue is not null or row_number() over (
                   order by b.queue is null, k.live desc nulls last, k.queue) <= 1000 as is_shown
        from known k
        left join jsonb_array_elements_text(coalesce(before -> 'queues', '[]')) as b(queue)
            on b.queue = k.queue
        left join own o on o.queue = k.queue)
    select coalesce(array_agg(p.queue order by p.queue) filter (where is_shown), '{}'),
           coalesce(bool_or(not is_shown), false)
    into chosen_queues, folded
    from placed p;

    select coalesce(jsonb_agg(jsonb_build_array(p.queue, p.kind)), '[]') into pairs
    from (select t.queue, t.kind, b.queue is not null or o.queue is not null or row_number() over (
                     order by b.queue is null, t.queue, t.kind) <= 3000 as is_shown
          from (select t.queue, t.kind from redrive.tallies t
                union select t.queue, t.kind from redrive.deltas t) t
          join unnest(chosen_queues) as q(queue) on q.queue = t.queue
          join unnest(chosen_kinds) as k(kind) on k.kind = t.kind
          left join (select b ->> 0 as queue, b ->> 1 as kind
                     from jsonb_array_elements(coalesce(before -> 'pairs', '[]')) b) b
              on b.queue = t.queue and b.kind = t.kind
          left join (select distinct k.queue, k.kind from redrive.kind_objectives k) o
              on o.queue = t.queue and o.kind = t.kind) p
    where p.is_shown;

    select coalesce(jsonb_agg(jsonb_build_array(t.queue, t.kind, t.event, t.reason,
                                                coalesce(b.n, t.n))), '[]') into bases
    from redrive.totals t
    join unnest(chosen_queues) as q(queue) on q.queue = t.queue
    left join (select b ->> 0 as queue, b ->> 1 as kind, b ->> 2 as event, b ->> 3 as reason,
                      (b ->> 4)::bigint as n
               from jsonb_array_elements(coalesce(before -> 'bases', '[]')) b) b
        on b.queue = t.queue and b.kind = t.kind and b.event = t.event and b.reason = t.reason
    left join jsonb_array_elements_text(coalesce(before -> 'queues', '[]')) as s(queue)
        on s.queue = t.queue
    where b.n is not null or s.queue is null and (before ->> 'folded')::boolean;

    return jsonb_build_object('kinds', to_jsonb(chosen_kinds), 'queues', to_jsonb(chosen_queues),
                              'folded', folded, 'pairs', pairs, 'bases', bases);
end
$$;

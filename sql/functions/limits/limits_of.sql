-- limits_of: the names under which a job counts, by the templates of its kind.
-- in:    templates: `emails`, `customer:{customer_id}`; {kind}, {queue}, {tenant}, or the path of a
--        field of the payload, {order.shop}
-- A field that is not there, or that is encrypted, is empty: such jobs share a key. A long one is
-- told apart by its hash.
-- plan:  the planner makes it a part of the statement that asks
create or replace function redrive.limits_of_v1(
    templates text[], kind text, queue text, tenant text, payload jsonb)
returns table (names text[])
language sql stable
rows 1
begin atomic
    select array_agg(distinct case when length(f.name) <= 255 then f.name
                                   else left(f.name, 200) || md5(f.name) end)
    from (select case when strpos(t.template, '{') = 0 then t.template else (
                     select string_agg(p.m[1] || coalesce(
                                case p.m[2] when 'kind' then limits_of_v1.kind
                                            when 'queue' then limits_of_v1.queue
                                            when 'tenant' then limits_of_v1.tenant
                                else payload #>> string_to_array(p.m[2], '.') end, ''),
                                '' order by p.n)
                     from regexp_matches(t.template, '([^{]*)(?:\{([^}]*)\})?', 'g')
                         with ordinality as p(m, n)) end as name
          from unnest(templates) as t(template)) f;
end;

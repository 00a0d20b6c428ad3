-- limits_of: return the names under which a job counts, by the templates of its kind.
-- in:    templates: `emails`, `customer:{customer_id}`; {kind}, {queue}, {tenant}, or the path of a
--        field of the payload, {order.shop}
-- A field that is missing or encrypted is empty, so such jobs share a key. A long name is cut, and
-- its hash keeps it distinct.
-- plan:  inlined into the caller's statement
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

-- names_used: count the queues and kinds in use, and return how many may be in use.
-- A kind counts once for each queue and each priority that it is used with.
create or replace function redrive.names_used_v1()
returns table (what text, used int, at_most int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select l.what, case l.what when 'queues' then u.queues else u.kinds end, l.at_most
    from redrive.name_limits l, (
        select count(distinct n.queue)::int as queues,
               count(distinct (n.queue, n.kind, n.priority))::int as kinds
        from redrive.names n) u
    order by l.what
$$;

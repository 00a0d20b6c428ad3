-- put_limit: set the limit of a name, or of each name with a prefix such as `customer:*`.
-- Without figures the limit is removed, and the jobs that wait for it are woken. This wakes 10,000
-- jobs, and tend_limits wakes the others. set_limit and campaigns use it.
-- locks: the keys of the names that jobs wait for, sorted, as take_slots
create or replace function redrive.put_limit_v1(name text, concurrency int, rate float8)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    at_name text;
    woken int := 0;
begin
    if concurrency is null and rate is null then
        delete from redrive.limits l where l.name = put_limit_v1.name;
    else
        insert into redrive.limits as l (name, concurrency, rate)
        values (name, concurrency, rate)
        on conflict on constraint limits_pkey do update
        set concurrency = excluded.concurrency, rate = excluded.rate, set_at = clock_timestamp();
        -- running jobs count already
        insert into redrive.limit_slots (name, job)
        select n.name, j.id
        from redrive.claims k cross join lateral unnest(k.ids) as c(id)
        join redrive.jobs j on j.id = c.id
        cross join lateral unnest(j.limits) as n(name)
        where n.name = put_limit_v1.name
           or right(put_limit_v1.name, 2) = ':*'
              and starts_with(n.name, left(put_limit_v1.name, -1))
        on conflict do nothing;
    end if;
    for at_name in
        with recursive waiting(name) as (
            (select w.name from redrive.limit_waits w order by w.name limit 1)
            union all
            select n.name
            from waiting g, lateral (select w.name from redrive.limit_waits w where w.name > g.name
                                     order by w.name limit 1) n)
        select a.name from (
            select put_limit_v1.name
            union
            (select w.name from waiting w
             where right(put_limit_v1.name, 2) = ':*'
               and starts_with(w.name, left(put_limit_v1.name, -1))
             limit 100)) a                     -- tend_limits handles the rest
        order by a.name
    loop
        -- a low rate may have put some jobs off for long
        update redrive.limit_keys k set placed_at = clock_timestamp()
        where k.name = at_name and k.placed_at > clock_timestamp();
        woken := woken + coalesce((
            select redrive.wake_v1(at_name, r.slots, l.setting is not null)
            from (select) one
            left join redrive.limit_of_v1(at_name) l on true
            left join redrive.limit_room_v1(at_name) r on true), 0);
        exit when woken >= 10000;
    end loop;
end
$$;

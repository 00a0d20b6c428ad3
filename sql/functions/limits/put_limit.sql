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
    running bigint[];      -- jobs that count now, each with its name
    names text[];
begin
    if concurrency is null and rate is null then
        delete from redrive.limits l where l.name = put_limit_v1.name;
    else
        insert into redrive.limits as l (name, concurrency, rate)
        values (name, concurrency, rate)
        on conflict on constraint limits_pkey do update
        set concurrency = excluded.concurrency, rate = excluded.rate, set_at = clock_timestamp();
        -- Running jobs count already. The key says from where their slots are counted.
        select array_agg(j.id), array_agg(n.name) into running, names
        from redrive.claims k cross join lateral unnest(k.ids) as c(id)
        join redrive.jobs j on j.id = c.id
        cross join lateral unnest(j.limits) as n(name)
        where k.id >= redrive.claims_from_v1(null)
          and (n.name = put_limit_v1.name
               or right(put_limit_v1.name, 2) = ':*'
                  and starts_with(n.name, left(put_limit_v1.name, -1)));
        insert into redrive.limit_keys as k (name)
        select distinct n.name from unnest(names) as n(name) order by 1
        on conflict on constraint limit_keys_pkey do update set slots_from = 0, slots_seen = 0;
        insert into redrive.limit_slots (name, job)
        select n.name, n.job from unnest(names, running) as n(name, job)
        on conflict do nothing;
    end if;
    for at_name in
        select a.name from (
            select put_limit_v1.name
            union
            (select distinct l.name from redrive.limit_lines l
             where right(put_limit_v1.name, 2) = ':*'
               and starts_with(l.name, left(put_limit_v1.name, -1))
             limit 100)) a                     -- tend_limits handles the rest
        order by a.name
    loop
        -- a low rate may have put some jobs off for long
        if exists (select from redrive.pace_v1(at_name) p where p.placed_at > clock_timestamp()) then
            perform from redrive.limit_keys k where k.name = at_name for update;
            perform redrive.set_pace_v1(at_name, null, clock_timestamp());
        end if;
        woken := woken + coalesce((
            select redrive.wake_v1(at_name, r.slots, l.setting is not null)
            from (select) one
            left join redrive.limit_of_v1(at_name) l on true
            left join redrive.limit_room_v1(at_name) r on true), 0);
        exit when woken >= 10000;
    end loop;
end
$$;

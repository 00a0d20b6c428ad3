-- tend_limits: wake jobs that wait for a limit although there is room.
-- Perhaps the last job that could wake it ended while it began to wait. Or its queue was resumed,
-- or its limit was raised. Each call is one step of a walk over the names.
-- in:    most: names to look at; the step ends earlier once it has woken 10,000 jobs
-- out:   how many jobs were woken
-- plan:  limit_keys_pkey, and a descent of limit_waits_line_idx for each name with waiting jobs
create or replace function redrive.tend_limits_v1(most int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    at_name text;
    start text;
    looked int := 0;
    woken int := 0;
begin
    -- A slot is freed when its job leaves its claim. Delete slots whose jobs have no claim.
    if exists (select from redrive.limit_slots) then
        -- Not `not in`: each slot would be searched in all claims if the planner expects many.
        delete from redrive.limit_slots s
        where s.job = any (array(
            select o.job from redrive.limit_slots o
            except
            select c.id from redrive.claims k, unnest(k.ids) as c(id)
            where k.id >= redrive.claims_from_v1(null)));
        -- Its job ended while put_limit counted it. Its claim may list other running jobs.
        delete from redrive.limit_slots s
        where not exists (select from redrive.jobs j where j.id = s.job);
    end if;
    select c.last_key[1] into start from redrive.chores c where c.name = 'limits';
    for at_name in
        with recursive waiting(name) as (
            (select w.name from redrive.limit_waits w where w.name > coalesce(start, '')
             order by w.name limit 1)
            union all
            select n.name
            from waiting g, lateral (select w.name from redrive.limit_waits w where w.name > g.name
                                     order by w.name limit 1) n)
        select a.name from (
            (select k.name from redrive.limit_keys k where k.name > coalesce(start, '')
             order by k.name limit most)
            union
            (select w.name from waiting w limit most)) a
        order by a.name limit most
    loop
        if woken >= 10000 then
            looked := most;    -- the next step goes on behind `start`
            exit;
        end if;
        looked := looked + 1;
        start := at_name;
        if exists (select from redrive.limit_waits w where w.name = at_name) then
            -- park inserts no key. Or the key was deleted below while no waiting job was visible.
            insert into redrive.limit_keys (name)
            select at_name
            where not exists (select from redrive.limit_keys k where k.name = at_name)
            on conflict do nothing;
            woken := woken + coalesce((
                select sum(redrive.wake_v1(at_name, case when l.setting is not null then r.slots end,
                                           is_served => l.setting is not null))
                from (select) one
                left join redrive.limit_of_v1(at_name) l on true
                left join redrive.limit_room_v1(at_name) r on true), 0);
        else
            delete from redrive.limit_keys k
            where k.name = (select o.name from redrive.limit_keys o
                            where o.name = at_name and o.next_at < clock_timestamp()
                              and o.placed_at < clock_timestamp()
                            for update skip locked)
              and not exists (select from redrive.limits l where l.name = at_name)
              and not exists (select from redrive.limit_slots s where s.name = at_name);
        end if;
    end loop;
    update redrive.chores c set last_key = array[case when looked < most then '' else start end]
    where c.name = 'limits'
      and c.last_key is distinct from array[case when looked < most then '' else start end];
    return woken;
end
$$;

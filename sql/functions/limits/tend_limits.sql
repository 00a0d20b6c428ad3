-- tend_limits: wake jobs that wait for a limit although there is room.
-- Perhaps the last job that could wake it ended while it began to wait. Or its queue was resumed,
-- or its limit was raised. Each call is one step of a walk over the names.
-- in:    most: names to look at; the step ends earlier once it has woken 10,000 jobs
-- out:   how many jobs were woken
-- plan:  limit_keys_pkey and limit_lines_name_idx; the slots and the waiting jobs from their first
--        one. mend_lines reads from the beginning, but seldom
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
    -- Not `not in`: each slot would be searched in all claims if the planner expects many.
    delete from redrive.limit_slots s
    where s.job = any (array(
        select o.job
        from redrive.limit_keys k
        cross join lateral (select l.job from redrive.limit_slots l
                            where l.name = k.name and l.id >= k.slots_from) o
        except
        select c.id from redrive.claims k, unnest(k.ids) as c(id)
        where k.id >= redrive.claims_from_v1(null)));
    -- Its job ended while put_limit counted it. Its claim may list other running jobs.
    delete from redrive.limit_slots s
    where s.job = any (array(
        select o.job
        from redrive.limit_keys k
        cross join lateral (select l.job from redrive.limit_slots l
                            where l.name = k.name and l.id >= k.slots_from) o
        where not exists (select from redrive.jobs j where j.id = o.job)));
    -- A restore, or a switch to a logical replica, has set the sequence back.
    update redrive.limit_keys k set slots_from = 0, slots_seen = 0
    where k.slots_from > (select q.last_value + 1 from redrive.limit_slots_id_seq q);
    perform redrive.mend_lines_v1();
    select c.last_key[1] into start from redrive.chores c where c.name = 'limits';
    for at_name in
        select a.name from (
            (select k.name from redrive.limit_keys k where k.name > coalesce(start, '')
             order by k.name limit most)
            union
            (select distinct l.name from redrive.limit_lines l where l.name > coalesce(start, '')
             order by l.name limit most)) a
        order by a.name limit most
    loop
        if woken >= 10000 then
            looked := most;    -- the next step goes on behind `start`
            exit;
        end if;
        looked := looked + 1;
        start := at_name;
        if exists (select from redrive.waited_for_v1(array[at_name])) then
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
            with gone as (
                delete from redrive.limit_keys k
                where k.name = (select o.name from redrive.limit_keys o
                                where o.name = at_name for update skip locked)
                  and not exists (select from redrive.pace_v1(at_name) p
                                  where greatest(p.next_at, p.placed_at) >= clock_timestamp())
                  and not exists (select from redrive.limits s where s.name = at_name)
                  and not exists (select from redrive.limit_slots s
                                  where s.name = at_name and s.id >= k.slots_from)
                  -- else the next job would read the slots that ended before this place
                  and (k.slots_from = 0
                       or not exists (select from redrive.limit_of_v1(at_name))
                       or k.slots_seen + 1000000 < (select q.last_value
                                                    from redrive.limit_slots_id_seq q))
                returning k.name)
            delete from redrive.limit_paces p
            where p.name in (select g.name from gone g)
              and p.n = (select o.n from redrive.limit_paces o where o.name = p.name
                         order by o.n desc limit 1);
        end if;
    end loop;
    update redrive.chores c set last_key = array[case when looked < most then '' else start end]
    where c.name = 'limits'
      and c.last_key is distinct from array[case when looked < most then '' else start end];
    return woken;
end
$$;

-- turn_history: make the partitions that are needed today and tomorrow, and drop those whose day has
-- come.
-- in:    today, in UTC
-- out:   how many were made or dropped
-- locks: the chore's row, skip locked. To drop a partition, and to attach one beside rows of its own
--        in the default, nobody else may be at the history: waited for 0.3 s, during which whoever
--        completes a job with a history waits, too. Then it is put off to the next time. Producers
--        do not meet it.
create or replace function redrive.turn_history_v1(today date) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '300ms'
set jit = off
as $$
declare
    day date;
    name text;
    turned int := 0;
begin
    perform from redrive.chores c where c.name = 'history' for update skip locked;
    if not found then
        return 0;
    end if;
    for day, name in
        select distinct v.day, to_char(v.day, '"history_"YYYYMMDD')
        from redrive.history_queues q
        cross join lateral (values (today + q.days + 1), (today + q.days + 2)) v(day)
        where to_regclass(to_char(v.day, '"redrive.history_"YYYYMMDD')) is null
        order by 1
    loop
        begin
            -- before rows are moved: none comes after them
            lock table redrive.history_default in access exclusive mode;
            execute format('create table redrive.%I (like redrive.history including defaults)', name);
            -- not inherited; without it a publication of all tables refuses every delete
            execute format('alter table redrive.%I replica identity full', name);
            execute format(
                'with moved as (delete from redrive.history_default where drop_on = %L returning *)'
                ' insert into redrive.%I select * from moved', day, name);
            execute format('alter table redrive.history attach partition redrive.%I'
                           ' for values in (%L)', name, day);
            turned := turned + 1;
        exception when lock_not_available then
            null;
        end;
    end loop;
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'redrive.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') <= today
        order by 1
    loop
        begin
            execute format('drop table redrive.%I', name);
            turned := turned + 1;
        exception when lock_not_available then
            null;
        end;
    end loop;
    delete from redrive.history_default d where d.drop_on <= today;
    return turned;
end
$$;

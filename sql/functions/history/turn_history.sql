-- turn_history: create the partitions for today and tomorrow, and drop the ones whose day has come.
-- in:    today, in UTC
-- out:   how many were created or dropped
-- locks: the chore's row, skip locked. To drop a partition, or to attach one that has rows in the
--        default partition, no other session may use the history. It waits for that for 0.3 s, and
--        then puts it off to the next call. Meanwhile a session that completes a job with a history
--        waits, too. Producers never use the history
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
    put_off int := 0;
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
            -- Before the rows are moved, so that none is added after them.
            lock table redrive.history_default in access exclusive mode;
            execute format('create table redrive.%I (like redrive.history including defaults)', name);
            -- Not inherited. Without it, a publication of all tables would refuse each delete.
            execute format('alter table redrive.%I replica identity full', name);
            execute format(
                'with moved as (delete from redrive.history_default where drop_on = %L returning *)'
                ' insert into redrive.%I select * from moved', day, name);
            execute format('alter table redrive.history attach partition redrive.%I'
                           ' for values in (%L)', name, day);
            turned := turned + 1;
        exception when lock_not_available then
            put_off := put_off + 1;
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
            put_off := put_off + 1;
        end;
    end loop;
    delete from redrive.history_default d where d.drop_on <= today;
    if put_off = 0 then
        perform redrive.finish_chore_v1('history_days', '1 day');
    end if;
    return turned;
end
$$;

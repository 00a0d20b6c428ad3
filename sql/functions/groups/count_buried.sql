-- count_buried: every insert into the dead letters, as a delta of its group.
-- Statement triggers, so that no function that buries, redrives, dismisses or purges can forget it.
create or replace function redrive.count_buried() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample,
                                      version, added, opened)
    select f.fingerprint, min(f.kind), min(f.category), min(f.error_class), min(f.message),
           max(f.id), coalesce(f.version, ''), count(*), count(*) filter (where f.state = 'open')
    from fresh f group by f.fingerprint, coalesce(f.version, '');
    return null;
end
$$;

create or replace trigger dead_letters_buried after insert on redrive.dead_letters
    referencing new table as fresh for each statement execute function redrive.count_buried();

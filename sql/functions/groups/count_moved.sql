-- count_moved: write a delta of its group when a dead letter enters or leaves the state open.
create or replace function redrive.count_moved() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample,
                                      added, opened)
    select m.fingerprint, min(m.kind), min(m.category), min(m.error_class), min(m.message),
           max(m.id), 0, sum(m.n)
    from (select fingerprint, kind, category, error_class, message, id, -1 as n from gone
          where state = 'open'
          union all
          select fingerprint, kind, category, error_class, message, id, 1 from fresh
          where state = 'open') m
    group by m.fingerprint having sum(m.n) <> 0;
    return null;
end
$$;

create or replace trigger dead_letters_moved after update on redrive.dead_letters
    referencing old table as gone new table as fresh for each statement
    execute function redrive.count_moved();

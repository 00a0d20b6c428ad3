-- count_purged: write a delta of its group when an open dead letter is deleted.
create or replace function redrive.count_purged() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample,
                                      added, opened)
    select g.fingerprint, min(g.kind), min(g.category), min(g.error_class), min(g.message),
           max(g.id), 0, -count(*)
    from gone g where g.state = 'open' group by g.fingerprint;
    return null;
end
$$;

create or replace trigger dead_letters_purged after delete on redrive.dead_letters
    referencing old table as gone for each statement execute function redrive.count_purged();

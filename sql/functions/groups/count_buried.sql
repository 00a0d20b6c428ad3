-- count_buried: write each insert into the dead letters as a delta of its group.
-- The three counts are statement triggers, so that no function that dead-letters, redrives,
-- dismisses or purges can forget them.
create or replace function redrive.count_buried() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    -- Imported dead letters died over some time: a delta with the number 0 records the first time.
    insert into redrive.group_deltas (fingerprint, kind, category, error_class, message, sample,
                                      version, added, opened, at)
    select g.fingerprint, g.kind, g.category, g.error_class, g.message, g.sample, g.version,
           s.added, s.opened, s.at
    from (select f.fingerprint, min(f.kind) as kind, min(f.category) as category,
                 min(f.error_class) as error_class, min(f.message) as message,
                 max(f.id) as sample, coalesce(f.version, '') as version, count(*) as added,
                 count(*) filter (where f.state = 'open') as opened,
                 min(f.died_at) as first_at, max(f.died_at) as last_at
          from fresh f group by f.fingerprint, coalesce(f.version, '')) g,
    lateral (values (g.added, g.opened, g.last_at), (0, 0, g.first_at)) as s(added, opened, at)
    where s.added > 0 or g.first_at < g.last_at - interval '1 minute';
    return null;
end
$$;

create or replace trigger dead_letters_buried after insert on redrive.dead_letters
    referencing new table as fresh for each statement execute function redrive.count_buried();

-- serves: 8
-- A publication makes Postgres refuse every update and delete of a table that has no replica identity. These tables have no
-- primary key, because an index would cost each exchange WAL and CPU. A full identity is free while wal_level is replica.
alter table redrive.names replica identity full;
alter table redrive.deltas replica identity full;
alter table redrive.batch_deltas replica identity full;
alter table redrive.group_deltas replica identity full;
alter table redrive.side_effects replica identity full;
alter table redrive.purge_lock replica identity full;
alter table redrive.redrive_lock replica identity full;
alter table redrive.reencrypt_lock replica identity full;
alter table redrive.history replica identity full;

-- Each partition has an identity of its own. turn_history_v1 gives one to the partitions that it makes.
do $$
declare
    partition regclass;
begin
    for partition in select i.inhrelid from pg_inherits i where i.inhparent = 'redrive.history'::regclass loop
        execute format('alter table %s replica identity full', partition);
    end loop;
end
$$;

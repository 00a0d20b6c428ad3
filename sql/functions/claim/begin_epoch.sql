-- begin_epoch: make sure, after a crash or a failover, that no new claim gets an id used before.
-- out:   the first new id
-- locks: another session that begins an epoch waits, and then finds this one
create or replace function redrive.begin_epoch_v1()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    -- more ids than could be claimed and lost between two flushes of the log
    insert into redrive.epoch (since)
    select setval(c.seq, nextval(c.seq) + 1000000)
    from pg_get_serial_sequence('redrive.claims', 'id') as c(seq)
    on conflict do nothing;
    return (select e.since from redrive.epoch e);
end
$$;

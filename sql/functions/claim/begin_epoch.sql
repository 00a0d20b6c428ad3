-- begin_epoch: after a crash or a failover, let claims have ids that none had before.
-- out:   the first of them
-- locks: whoever else begins one waits, and finds this one
create or replace function redrive.begin_epoch_v1()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    -- more than could be claimed and lost between two flushes of the log
    insert into redrive.epoch (since)
    select setval(c.seq, nextval(c.seq) + 1000000)
    from pg_get_serial_sequence('redrive.claims', 'id') as c(seq)
    on conflict do nothing;
    return (select e.since from redrive.epoch e);
end
$$;

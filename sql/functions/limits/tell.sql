-- tell: wake the workers of these queues, once in 20 ms for all sessions, as admit does.
create or replace function redrive.tell_v1(slots int) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    tick constant bigint := floor(date_part('epoch', clock_timestamp()) * 50);
    lately bigint := coalesce(pg_sequence_last_value('redrive.notified'::regclass), 0);
begin
    -- if the server allows prepared transactions, each transaction notifies, as in admit
    if lately >> 16 <> tick or current_setting('max_prepared_transactions') <> '0' then
        lately := tick << 16;
    end if;
    if slots & ~(lately & 65535)::int <> 0
       and current_setting('redrive.notify', true) is distinct from 'off' then
        perform setval('redrive.notified', lately | slots), pg_notify('redrive', slots::text);
    end if;
end
$$;

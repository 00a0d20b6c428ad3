-- track_open: keep a row in open_groups for each group that has open dead letters.
-- A group without any loses its row, and so its acknowledgement, unless its jobs are failing.
-- plan:  fold_groups updates groups; the triggers only call this when a group opens or closes
create or replace function redrive.track_open() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    if new.open > 0 then
        insert into redrive.open_groups (fingerprint, queue)
        values (new.fingerprint, redrive.queue_of_v1(new.sample))
        on conflict do nothing;
    elsif not redrive.is_failing_v1(new.fingerprint) then
        delete from redrive.open_groups o where o.fingerprint = new.fingerprint;
    end if;
    return null;
end
$$;

create or replace trigger groups_came after insert on redrive.groups
    for each row when (new.open > 0) execute function redrive.track_open();
create or replace trigger groups_opened_or_closed after update of open on redrive.groups
    for each row when ((old.open > 0) <> (new.open > 0)) execute function redrive.track_open();

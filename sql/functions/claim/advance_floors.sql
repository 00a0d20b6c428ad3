-- advance_floors: move forward the lowest claim id that a scan of a worker's claims must read.
-- Then no scan meets the dead rows below it, even if an open snapshot keeps many of them. Each call
-- handles at most ten workers.
-- locks: worker rows exclusively, skip locked. A claim that is being made holds its worker's row
--        until it commits. So each later claim has an id beyond the last one of the sequence
-- plan:  claims_worker_idx
create or replace function redrive.advance_floors_v1() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    worth constant int := 10000;  -- in claims; fewer dead rows cost less than the update
    last_id bigint := (select s.last_value from redrive.claims_id_seq s);
    stale record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;  -- each statement has to see what was committed before it
    end if;
    for stale in
        select w.id, w.claims_from from redrive.workers w
        -- or beyond the sequence, because a restore has set the sequence back
        where not w.claims_from between last_id - worth and last_id + 1
        order by w.claims_from limit 10
        for update skip locked
    loop
        last_id := (select s.last_value from redrive.claims_id_seq s);
        if stale.claims_from > last_id + 1 then
            stale.claims_from := 0;
        end if;
        update redrive.workers w
        set claims_from = coalesce((
            select k.id from redrive.claims k
            where k.worker = stale.id and k.id >= stale.claims_from
            order by k.id limit 1), last_id + 1)
        where w.id = stale.id;
    end loop;
end
$$;

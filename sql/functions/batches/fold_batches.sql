-- fold_batches: add up the outcomes of the jobs of batches, and make callbacks due.
-- on_end becomes due the first time that no job of the batch is left alive. on_success becomes due
-- when all jobs have succeeded, even if some died and were redriven before. A batch that is over
-- takes no more jobs, and its remaining callbacks are cancelled. A batch that is not closed in time
-- is abandoned.
-- Each call is one step of a walk over the batches with new outcomes, so a batch that is locked for
-- hours does not keep others waiting.
-- in:    batch: how many batches to look at
-- out:   as many as asked for if there may be more; else how many batches were looked at
-- locks: the chore's row, skip locked: only one worker folds at a time. Then batches, skip locked:
--        a batch that a transaction is adding to is looked at again later. Then their callbacks,
--        skip locked: a batch with a locked callback is looked at again later, too
-- plan:  batch_deltas_new_idx, a descent for each batch; batch_deltas_batch_idx, batches_open_idx
create or replace function redrive.fold_batches_v1(batch int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    room int := 20000;     -- rows that this step may still add up
    start bigint;
    changed bigint[];
    late bigint[];
    one bigint;
    held redrive.batches;
    n record;
    was_success boolean;
begin
    select c.place into start from redrive.chores c where c.name = 'batches' for update skip locked;
    if not found then
        return 0;
    end if;
    changed := array(
        with recursive line(batch, n) as (
            (select d.batch, 1 from redrive.batch_deltas d
             where not d.is_folded and d.batch > start order by d.batch limit 1)
            union all
            select d.batch, c.n + 1
            from line c, lateral (
                select o.batch from redrive.batch_deltas o
                where not o.is_folded and o.batch > c.batch order by o.batch limit 1) d
            where c.n < fold_batches_v1.batch)
        select c.batch from line c order by c.n);
    start := coalesce(changed[fold_batches_v1.batch], 0);   -- 0: begin again
    update redrive.chores c set place = start where c.name = 'batches' and c.place <> start;
    late := array(
        select b.id from redrive.batches b
        where b.closed_at is null and b.over_at is null and b.close_by < clock_timestamp()
        order by b.close_by limit fold_batches_v1.batch for update skip locked);
    foreach one in array late || changed loop
        -- Limited, because jobs that were enqueued one by one leave one row each.
        exit when room < 1;
        with gone as (
            delete from redrive.batch_deltas d
            where d.ctid = any (array(select o.ctid from redrive.batch_deltas o
                                      where o.batch = one limit room))
            returning d.total, d.succeeded, d.dead, d.cancelled)
        insert into redrive.batch_deltas (batch, total, succeeded, dead, cancelled, is_folded)
        select one, coalesce(sum(g.total), 0), coalesce(sum(g.succeeded), 0),
               coalesce(sum(g.dead), 0), coalesce(sum(g.cancelled), 0), true
        from gone g
        returning room - (select count(*) from gone) into room;
        continue when exists (select from redrive.batch_deltas d
                              where d.batch = one and not d.is_folded);
        select b.* into held from redrive.batches b
        where b.id = one and b.over_at is null for update skip locked;
        if not found then
            -- An open transaction is adding to this batch, or the batch is over.
            insert into redrive.batch_deltas (batch)
            select b.id from redrive.batches b where b.id = one and b.over_at is null;
            -- The batch was abandoned, and deleted before its last job ended.
            delete from redrive.batch_deltas d
            where d.batch = one and not exists (select from redrive.batches b where b.id = one);
            continue;
        end if;
        if cardinality(array(select j.id from redrive.jobs j
                             where j.id in (held.on_success, held.on_end)
                             order by j.id for update skip locked))
           < (select count(*) from redrive.jobs j where j.id in (held.on_success, held.on_end)) then
            insert into redrive.batch_deltas (batch) values (one);
            continue;
        end if;
        -- Read the sums again: a transaction may have added jobs before the lock and committed
        -- since.
        select sum(d.total)::bigint as total, sum(d.succeeded)::bigint as succeeded,
               sum(d.dead)::bigint as dead, sum(d.cancelled)::bigint as cancelled
        into n from redrive.batch_deltas d where d.batch = one;
        if held.closed_at is null then
            if held.close_by < clock_timestamp() then
                update redrive.batches b set over_at = clock_timestamp(), outcome = 'abandoned'
                where b.id = one;
                perform redrive.cancel_callbacks_v1(array[held.on_success, held.on_end]);
            end if;
            continue;
        end if;
        continue when n.total > n.succeeded + n.dead + n.cancelled;
        was_success := n.succeeded = n.total;
        if held.ended_at is null then
            perform redrive.call_back_v1(held.on_end, one, to_jsonb(n));
        end if;
        if n.dead = 0 and was_success then
            perform redrive.call_back_v1(held.on_success, one, to_jsonb(n));
        elsif n.dead = 0 and held.on_success is not null then
            perform redrive.cancel_callbacks_v1(array[held.on_success]);
        end if;
        update redrive.batches b
        set ended_at = coalesce(b.ended_at, clock_timestamp()),
            over_at = case when n.dead = 0 then clock_timestamp() end,
            outcome = case when n.dead = 0 and was_success then 'succeeded'
                           when n.dead = 0 then 'ended' end
        where b.id = one;
    end loop;
    return case when room < 1 then fold_batches_v1.batch else cardinality(late || changed) end;
end
$$;

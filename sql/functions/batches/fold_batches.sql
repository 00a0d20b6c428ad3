-- fold_batches: add up the outcomes of the jobs of batches, and make callbacks due.
-- on_end becomes due the first time that no job of the batch is left alive. on_success becomes due
-- when all jobs have succeeded, even if some died and were redriven before. A batch that is over
-- takes no more jobs, and its remaining callbacks are cancelled. A batch that is not closed in time
-- is abandoned.
-- Each call is one step of a walk over the next blocks of the new outcomes. So it costs the same,
-- however many there are and whatever vacuum was not allowed to remove. All new outcomes of a batch
-- are looked for once its sums say that it may have ended.
-- in:    batch: how many batches to look at
-- out:   as many as asked for if there may be more; else how many batches were looked at
-- locks: the chore's row, skip locked: only one worker folds at a time. Then batches, skip locked:
--        a batch that a transaction is adding to is looked at again later. Then their callbacks,
--        skip locked: a batch with a locked callback is looked at again later, too
-- plan:  a range of ctids; batch_deltas_sums_idx, batches_open_idx
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
    blocks constant int := 160;
    size constant bigint :=
        pg_relation_size('redrive.batch_deltas') / current_setting('block_size')::int;
    start bigint;
    after bigint;          -- the last batch that was looked at in these blocks
    changed bigint[];
    ended bigint[];        -- those that have ended, as far as is known
    late bigint[];
    is_more boolean;
    one bigint;
    held redrive.batches;
    n record;
    was_success boolean;
begin
    select case when c.place < size then c.place else 0 end, coalesce(c.last_key[1]::bigint, 0)
    into start, after from redrive.chores c where c.name = 'batches' for update skip locked;
    if not found then
        return 0;
    end if;
    with here as materialized (
        select d.ctid as at, d.batch, d.is_folded from redrive.batch_deltas d
        where d.ctid >= ('(' || start || ',0)')::tid
          and d.ctid < ('(' || start + blocks || ',0)')::tid),
    next as materialized (
        select distinct h.batch from here h where not h.is_folded and h.batch > after
        order by h.batch limit fold_batches_v1.batch),
    gone as (
        delete from redrive.batch_deltas d
        where d.ctid = any (array(
            select h.at from here h
            where not h.is_folded and h.batch in (select n.batch from next n)
            union all
            select f.at
            from next n cross join lateral (
                select o.ctid as at from redrive.batch_deltas o
                where o.batch = n.batch and o.is_folded offset 0) f))
        returning d.batch, d.total, d.succeeded, d.dead, d.cancelled),
    added as (
        insert into redrive.batch_deltas (batch, total, succeeded, dead, cancelled, is_folded)
        select g.batch, sum(g.total), sum(g.succeeded), sum(g.dead), sum(g.cancelled), true
        from gone g group by g.batch
        returning batch, total <= succeeded + dead + cancelled as is_ended)
    select coalesce(array_agg(a.batch order by a.batch), '{}'),
           array_agg(a.batch order by a.batch) filter (where a.is_ended)
    into changed, ended from added a;
    is_more := cardinality(changed) = fold_batches_v1.batch;
    after := case when is_more then changed[fold_batches_v1.batch] else 0 end;
    if not is_more then
        is_more := start + blocks < size;
        start := case when is_more then start + blocks else 0 end;
    end if;
    update redrive.chores c set place = start, last_key = array[after::text]
    where c.name = 'batches' and (c.place, c.last_key) is distinct from (start, array[after::text]);
    late := array(
        select b.id from redrive.batches b
        where b.closed_at is null and b.over_at is null and b.close_by < clock_timestamp()
        order by b.close_by limit fold_batches_v1.batch for update skip locked);
    foreach one in array late || ended loop
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
        if held.closed_at is null then
            if held.close_by < clock_timestamp() then
                update redrive.batches b set over_at = clock_timestamp(), outcome = 'abandoned'
                where b.id = one;
                perform redrive.cancel_callbacks_v1(array[held.on_success, held.on_end]);
            end if;
            continue;
        end if;
        -- Read the sums again: a transaction may have added jobs before the lock and committed
        -- since. If there are new outcomes, a later step comes back to this batch.
        select d.total, d.succeeded, d.dead, d.cancelled into n
        from redrive.batch_deltas d
        where d.batch = one and d.is_folded
          and not exists (select from redrive.batch_deltas o where o.batch = one and not o.is_folded);
        continue when (n.total <= n.succeeded + n.dead + n.cancelled) is not true;
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
    return case when is_more then fold_batches_v1.batch else cardinality(late || changed) end;
end
$$;

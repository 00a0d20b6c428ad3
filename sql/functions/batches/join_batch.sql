-- join_batch: count new jobs of batches, and redriven jobs of batches.
-- in:    parallel arrays: the batch of each job, and whether the job was redriven
-- errors: RD001 'batch: rule' for a new job of a batch that is over or never existed, or that
--        another producer opened; 40001 if the
--        batch ended after the transaction's snapshot
-- locks: batches for key share, so that no batch ends before this transaction does. Closing a batch
--        does not wait for this lock
create or replace function redrive.join_batch_v1(batches bigint[], redriven boolean[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    wanted constant bigint[] := array(
        select distinct v.batch from unnest(batches, redriven) as v(batch, is_back)
        where not v.is_back);
    taken int;
begin
    if cardinality(wanted) > 0 then
        perform from redrive.batches b where b.id = any (wanted) and b.over_at is null
          and redrive.may_change_batch_v1(b.login)
        for key share;
        get diagnostics taken = row_count;
        if taken < cardinality(wanted) then
            raise exception using errcode = 'RD001',
                message = 'batch: no batch with this id accepts jobs any more';
        end if;
    end if;
    insert into redrive.batch_deltas (batch, total, dead)
    select v.batch, count(*) filter (where not v.is_back), -count(*) filter (where v.is_back)
    from unnest(batches, redriven) as v(batch, is_back) group by v.batch;
end
$$;

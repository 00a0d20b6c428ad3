-- close_batch: record that the producer has enqueued all jobs of a batch.
-- Only the batch's own jobs may still add jobs to it.
-- out:   true if the batch was open; closing it twice is harmless
-- errors: RD001 'batch: rule' for a batch that was abandoned or never existed, or that another
--         producer opened
create or replace function redrive.close_batch_v1(batch bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    was_open boolean;
    lost boolean;
begin
    update redrive.batches b set closed_at = clock_timestamp()
    where b.id = close_batch_v1.batch and b.closed_at is null and b.over_at is null
      and redrive.may_change_batch_v1(b.login);
    was_open := found;
    if was_open then
        -- fold_batches reads it next
        insert into redrive.batch_deltas (batch) values (close_batch_v1.batch);
    else
        select b.outcome is not distinct from 'abandoned' or b.closed_at is null into lost
        from redrive.batches b where b.id = close_batch_v1.batch;
        if lost or lost is null then
            raise exception using errcode = 'RD001',
                message = 'batch: it does not exist, was not closed in time, or is another login''s';
        end if;
    end if;
    return was_open;
end
$$;

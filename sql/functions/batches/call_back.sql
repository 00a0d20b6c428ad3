-- call_back: make the callback of a batch due, unless it was cancelled.
-- in:    counts: the outcomes of the batch's jobs; the header `batch` holds them and the batch's id
create or replace function redrive.call_back_v1(job bigint, batch bigint, counts jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    update redrive.jobs j
    set run_at = clock_timestamp(),
        headers = j.headers || jsonb_build_object(
            'batch', jsonb_build_object('id', call_back_v1.batch) || counts)
    where j.id = call_back_v1.job and j.run_at = 'infinity';
    if found then
        perform pg_notify('redrive', redrive.wake_slot_v1(j.queue)::text)
        from redrive.jobs j where j.id = call_back_v1.job;
    end if;
end
$$;

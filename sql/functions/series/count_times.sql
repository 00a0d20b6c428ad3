-- count_times: add durations and waits that a worker has measured.
-- While 200,000 rows wait to be recorded, nothing is added, because recording has failed for long.
-- Then the durations and waits are lost, and no count is.
-- in:    parallel arrays: queues, kinds; durations, waits: one int[] for each, written as text
-- errors: RD001 'times: rule' if an array has not one number for each bucket
create or replace function redrive.count_times_v1(
    queues text[], kinds text[], durations text[], waits text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    most constant int := 200000;
begin
    if exists (select from unnest(durations, waits) as v(duration, wait)
               where coalesce(cardinality(v.duration::int[]), 0) <> 17
                  or coalesce(cardinality(v.wait::int[]), 0) <> 18) then
        raise exception using errcode = 'RD001', message = 'times: must have 17 and 18 buckets';
    end if;
    insert into redrive.series_deltas (queue, kind, duration, wait)
    select v.queue, v.kind, v.duration::int[], v.wait::int[]
    from unnest(queues, kinds, durations, waits) as v(queue, kind, duration, wait)
    where (select count(*) from (select from redrive.series_deltas limit most) d) < most;
end
$$;

-- sample: store the counters once, at the start of this minute.
-- It deletes samples that are older than an hour, and samples that a clock that was ahead has left.
-- The queue '' marks a minute that was sampled: a queue without a row had no dead letter then.
create or replace function redrive.sample_v1() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    this_minute constant timestamptz := date_trunc('minute', clock_timestamp());
begin
    if exists (select from redrive.samples s where s.minute = this_minute) then
        return;
    end if;
    insert into redrive.samples (minute, queue, dead)
    select this_minute, t.queue, sum(t.n) filter (where t.event = 'dead') from redrive.totals t
    group by t.queue having sum(t.n) filter (where t.event = 'dead') is not null
    union all select this_minute, '', 0
    on conflict do nothing;
    delete from redrive.samples s
    where s.minute < this_minute - interval '1 hour' or s.minute > this_minute;
end
$$;

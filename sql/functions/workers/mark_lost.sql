-- mark_lost: declare workers lost whose heartbeat stopped.
-- This is a call of its own, so that it holds even if taking their jobs back fails.
-- in:    ttl: for workers that declared none of their own
-- out:   how many were found now
-- locks: worker rows, skip locked
create or replace function redrive.mark_lost_v1(ttl interval) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    found_now int;
begin
    perform redrive.advance_contact_v1();
    with lost as (
        update redrive.workers w set lost_at = clock_timestamp()
        where w.id in (
            select s.id from redrive.workers s
            where s.lost_at is null
              -- its own ttl: a worker that beats less often is not lost to a caller with a shorter
              -- one
              and s.heard < (select redrive.contact_now_v1()) - coalesce(s.ttl, mark_lost_v1.ttl)
            for update skip locked)
        returning w.name, w.queues, w.kinds)
    insert into redrive.marks (what, name, queues, kinds)
    select 'worker lost', l.name, l.queues, l.kinds from lost l;
    get diagnostics found_now = row_count;
    return found_now;
end
$$;

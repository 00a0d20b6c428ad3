-- park: make these jobs wait for these limits, outside of each index range that a claim reads.
-- in:    parallel arrays
-- locks: no key, and it inserts none. A transaction that enqueues may stay open. A claim that
--        inserts the same key would wait for it, and two such transactions would wait for each
--        other. tend_limits inserts the key
-- plan:  jobs_pkey by `= any (ids)`, and hashes: there may be many
create or replace function redrive.park_v1(ids bigint[], names text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
begin
    insert into redrive.limit_waits as w (job, name, queue, kind, priority, due)
    select j.id, v.name, j.queue, j.kind, j.priority, j.run_at
    from unnest(ids, names) as v(id, name)
    join redrive.jobs j on j.id = v.id
    where j.id = any (ids) and j.run_at < 'infinity'
    order by j.id
    on conflict (job) do update set name = excluded.name, due = excluded.due;
    update redrive.jobs j set run_at = 'infinity' where j.id = any (ids) and j.run_at < 'infinity';
    -- a job that waits for a free slot does not run
    delete from redrive.running_keys r where r.job = any (ids);
end
$$;

-- park: make these jobs wait for these limits, outside of each index range that a claim reads.
-- in:    parallel arrays
-- locks: no key, and it inserts none. A transaction that enqueues may stay open. A claim that
--        inserts the same key would wait for it, and two such transactions would wait for each
--        other. tend_limits inserts the key. The lines of these jobs, skip locked
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
    with parked as (
        insert into redrive.limit_waits as w (job, name, queue, kind, priority, due)
        -- a job that came back has its old place in the line
        select j.id, v.name, j.queue, j.kind, j.priority,
               case when j.lane < 0 then j.created_at else j.run_at end
        from unnest(ids, names) as v(id, name)
        join redrive.jobs j on j.id = v.id
        where j.id = any (ids) and j.run_at < 'infinity'
        order by j.id
        on conflict (job) do update set name = excluded.name, due = excluded.due
        returning w.name, w.queue, w.kind, w.priority, w.due, w.job),
    -- A job that waited in a backlog was due before the place of its line.
    passed as materialized (
        select l.ctid as at, p.due, p.job
        from redrive.limit_lines l
        join (select distinct on (p.name, p.queue, p.kind, p.priority) p.*
              from parked p order by p.name, p.queue, p.kind, p.priority, p.due, p.job) p
          on p.name = l.name and p.queue = l.queue and p.kind = l.kind and p.priority = l.priority
        where l.name = any (names) and (l.due, l.job) > (p.due, p.job)
        for update of l skip locked),
    moved_back as (
        update redrive.limit_lines l set due = p.due, job = p.job from passed p where l.ctid = p.at)
    insert into redrive.limit_lines (name, queue, kind, priority)
    select distinct p.name, p.queue, p.kind, p.priority from parked p
    where (p.name, p.queue, p.kind, p.priority) not in (
        select l.name, l.queue, l.kind, l.priority from redrive.limit_lines l
        where l.name = any (names));
    update redrive.jobs j set run_at = 'infinity' where j.id = any (ids) and j.run_at < 'infinity';
    -- a job that waits for a free slot does not run
    delete from redrive.running_keys r where r.job = any (ids);
end
$$;

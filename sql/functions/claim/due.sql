-- due: list queues with due jobs of these kinds that no worker holds, and since when they are due.
-- A worker calls this if none of its exchanges succeeds, to learn whether jobs wait because of it.
-- in:    only_queues: null: all queues
--        kinds: as registered, such as mail.* for a prefix; null: all kinds
-- out:   since: the time since when the queue's oldest such job has been due
-- locks: no rows. The function fails after 0.1 s (55P03) if a whole table is locked
-- plan:  jobs_due_idx: at most 20,000 jobs of at most 1,000 lanes, besides the jobs that are held
create or replace function redrive.due_v1(only_queues text[], kinds text[])
returns table (queue text, since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    at_most constant int := 1000;
begin
    return query
    -- One array, because each job would be searched in all claims if the planner expects many.
    with held as materialized (
        select array(select c.id from redrive.claims k, unnest(k.ids) as c(id)
                     where k.id >= redrive.claims_from_v1(null)) as ids),
    listed as materialized (
        select l.queue, l.priority, l.lane
        from redrive.next_lanes_v1(only_queues, '', 0, 0, at_most) l),
    each as materialized (  -- jobs to read in each lane
        select (20000 / greatest(count(*), 1))::int as cap from listed),
    looked_at as materialized (
        select l.queue, l.priority, l.lane from listed l
        where not exists (select from redrive.queues q
                          where q.queue = l.queue and q.paused_at is not null))
    select l.queue, min(d.run_at)
    from looked_at l, lateral (
        select j.run_at as at from redrive.jobs j
        where j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
          and j.run_at <= now()
        order by j.run_at limit 1) f,
    -- Read half of the jobs from the first one on, and the others from seven later times and from the
    -- end. So jobs of these kinds are seen behind more jobs of other kinds.
    generate_series(0, 8) as part,
    lateral (
        (select j.kind, j.run_at from redrive.jobs j
         where part < 8
           and j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
           and j.run_at >= f.at + (now() - f.at) * part / 8 and j.run_at <= now()
           and j.id not in (select c.id from held h, unnest(h.ids) as c(id))
         order by j.run_at, j.id limit (select case part when 0 then e.cap / 2 else e.cap / 16 end from each e))
        union all
        (select j.kind, j.run_at from redrive.jobs j
         where part = 8
           and j.queue = l.queue and j.priority = l.priority and j.lane = l.lane
           and j.run_at <= now()
           and j.id not in (select c.id from held h, unnest(h.ids) as c(id))
         order by j.run_at desc, j.id desc limit (select e.cap / 16 from each e))) d
    where redrive.handles_v1(due_v1.kinds, d.kind)
    group by l.queue;
end
$$;

-- mend_lines: find the first waiting job of each line again, from the beginning.
-- A job may have become visible before the place of its line: its transaction was open for long. And
-- lines in which no job waits any longer are deleted. An open snapshot makes this slow, so it is
-- done every ten seconds, or in a twentieth of the time.
-- locks: the row of the chore `limits`, which the caller has updated
-- plan:  limit_waits_line_idx, a descent for each line
create or replace function redrive.mend_lines_v1() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    began constant timestamptz := clock_timestamp();
    next_at constant bigint := (select c.place from redrive.chores c where c.name = 'limits');
begin
    -- far in the future: the clock was set back
    if next_at - extract(epoch from began) between 0 and 3600 then
        return;
    end if;
    with recursive found(name, queue, kind, priority, due, job) as (
        (select w.name, w.queue, w.kind, w.priority, w.due, w.job from redrive.limit_waits w
         order by w.name, w.queue, w.kind, w.priority, w.due, w.job limit 1)
        union all
        select n.*
        from found f, lateral (
            select w.name, w.queue, w.kind, w.priority, w.due, w.job from redrive.limit_waits w
            where (w.name, w.queue, w.kind, w.priority) > (f.name, f.queue, f.kind, f.priority)
            order by w.name, w.queue, w.kind, w.priority, w.due, w.job limit 1) n),
    held as materialized (
        select l.ctid as at, l.name, l.queue, l.kind, l.priority, l.due, l.job, l.begun_at
        from redrive.limit_lines l for update skip locked),
    back as (
        update redrive.limit_lines l set due = f.due, job = f.job
        from held h join found f using (name, queue, kind, priority)
        where l.ctid = h.at and (h.due, h.job) > (f.due, f.job)),
    idle as (
        delete from redrive.limit_lines l
        where l.ctid = any (array(
            select h.at from held h
            where greatest(h.begun_at, h.due) < began - interval '1 hour'
              and (h.name, h.queue, h.kind, h.priority) not in (
                  select f.name, f.queue, f.kind, f.priority from found f))))
    insert into redrive.limit_lines (name, queue, kind, priority)
    select f.name, f.queue, f.kind, f.priority from found f
    where (f.name, f.queue, f.kind, f.priority) not in (
        select l.name, l.queue, l.kind, l.priority from redrive.limit_lines l);
    update redrive.chores c
    set place = extract(epoch from began + greatest(20 * (clock_timestamp() - began),
                                                    interval '10 s'))
    where c.name = 'limits';
end
$$;

-- fold: add deltas to the tallies, one step at a time.
-- A step handles the deltas in the next blocks of their table, after the last step's end. So each
-- step costs the same, however many deltas there are and whatever vacuum was not allowed to remove.
-- out:   moved: how many deltas were added; more: the end of the table has not been reached
-- locks: the chore's row, skip locked: while one worker folds, the others have nothing to do
-- plan:  a range of ctids; the sum of both tables is exact in each snapshot, because one statement
--        takes from one and adds to the other
create or replace function redrive.fold_v1(out moved int, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    blocks constant int := 128;
    size constant bigint :=
        pg_relation_size('redrive.deltas') / current_setting('block_size')::int;
    start bigint;
begin
    moved := 0;
    more := false;
    select case when c.place < size then c.place else 0 end into start
    from redrive.chores c where c.name = 'fold' for update skip locked;
    if not found then
        return;
    end if;
    with gone as (
        delete from redrive.deltas d
        where d.ctid >= ('(' || start || ',0)')::tid
          and d.ctid < ('(' || start + blocks || ',0)')::tid
        returning d.queue, d.kind, d.event, d.reason, d.n),
    added as (
        insert into redrive.tallies as t (queue, kind, event, reason, n, at)
        select queue, kind, event, reason, sum(n), clock_timestamp() from gone
        group by queue, kind, event, reason
        order by queue, kind, event, reason
        on conflict (queue, kind, event, reason)
            do update set n = t.n + excluded.n, at = excluded.at)
    select count(*) into moved from gone;
    more := start + blocks < size;
    update redrive.chores c set place = case when more then start + blocks else 0 end
    where c.name = 'fold' and (more or c.place > 0);
end
$$;

-- advance_keys: move on the places of ordering keys under which many jobs have ended.
-- An open snapshot keeps the rows of these jobs, and each search for the oldest job of the key reads
-- their entries in the index. A key gets its row in hot_keys the first time.
-- in:    ids: the jobs of these keys that the caller has just claimed. So it holds the keys: the row
--        in hot_keys, or the new row of generation 0 in running_keys
-- plan:  running_keys_pkey, and jobs_ordering_idx from the place of each key
create or replace function redrive.advance_keys_v1(of_queue text, ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
    many constant int := 100;     -- dead entries
    at_key text;
    hot redrive.hot_keys;
    head bigint;
    entries bigint;
begin
    foreach at_key in array array(
        select r.ordering_key from redrive.running_keys r where r.job = any (ids)) loop
        select h.* into hot from redrive.hot_keys h
        where h.queue = of_queue and h.ordering_key = at_key;
        entries := redrive.read_of_keys_v1();
        perform from redrive.running_keys r
        where r.queue = of_queue and r.ordering_key = at_key
          and r.generation = coalesce(hot.generation, 0);
        select j.id into head from redrive.jobs j
        where j.queue = of_queue and j.ordering_key = at_key and j.id >= coalesce(hot.jobs_from, 0)
        order by j.id limit 1;
        continue when redrive.read_of_keys_v1() - entries < many;
        if hot.queue is null then
            insert into redrive.hot_keys (queue, ordering_key, generation, jobs_from, next_from, next_xid)
            values (of_queue, at_key, 1, 0, head, pg_snapshot_xmax(pg_current_snapshot()));
            update redrive.running_keys r set generation = 1
            where r.job = any (ids) and r.queue = of_queue and r.ordering_key = at_key;
            -- another claim, which does not see the row in hot_keys yet, must not take the key
            insert into redrive.running_keys (queue, ordering_key, job) values (of_queue, at_key, 0);
        elsif hot.next_xid <= pg_snapshot_xmin(pg_current_snapshot())
              or hot.moved_at < clock_timestamp() - interval '1 second' then
            update redrive.hot_keys h
            set generation = h.generation + 1, moved_at = clock_timestamp(),
                (jobs_from, next_from, next_xid) = (
                    select n.a, n.b, n.c from (values
                        (least(h.next_from, head), head, pg_snapshot_xmax(pg_current_snapshot()), true),
                        (h.jobs_from, h.next_from, h.next_xid, false)) n(a, b, c, is_over)
                    where n.is_over = (h.next_xid <= pg_snapshot_xmin(pg_current_snapshot())))
            where h.queue = of_queue and h.ordering_key = at_key;
            update redrive.running_keys r set generation = r.generation + 1
            where r.job = any (ids) and r.queue = of_queue and r.ordering_key = at_key;
        end if;
    end loop;
end
$$;

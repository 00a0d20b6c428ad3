-- unpark: wake the first job of each ordering key whose predecessor ended before it could see it.
create or replace function redrive.unpark_v1() returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    woken int;
begin
    with recursive heads as (
        (select j.queue, j.ordering_key, j.id from redrive.jobs j where j.ordering_key is not null
         order by j.queue, j.ordering_key, j.id limit 1)
        union all
        select n.queue, n.ordering_key, n.id
        from heads h, lateral (
            select j.queue, j.ordering_key, j.id from redrive.jobs j
            where j.ordering_key is not null
              and (j.queue, j.ordering_key) > (h.queue, h.ordering_key)
            order by j.queue, j.ordering_key, j.id limit 1) n)
    update redrive.jobs j set run_at = clock_timestamp()
    from heads h
    where j.id = h.id and j.run_at = 'infinity'
      -- a redriven head may be older than the job of its key that runs now
      and not exists (select from redrive.jobs o
                      where o.queue = h.queue and o.ordering_key = h.ordering_key
                        and o.worker is not null);
    get diagnostics woken = row_count;
    return woken;
end
$$;

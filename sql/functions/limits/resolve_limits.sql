-- resolve_limits: set the limit names of the jobs among these that have a limited kind and no
-- names.
-- locks: jobs, ascending
-- plan:  jobs_pkey
create or replace function redrive.resolve_limits_v1(ids bigint[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    update redrive.jobs j
    set limits = (
        -- by the longest prefix, as a handler is found
        select f.names
        from redrive.kind_limits k
        cross join lateral redrive.limits_of_v1(
            k.templates, j.kind, j.queue, j.tenant, j.payload) f
        where redrive.handles_v1(array[k.kind], j.kind)
        order by length(k.kind) desc limit 1)
    where j.id = any (ids) and j.limits is null
      and exists (select from redrive.kind_limits k
                  where redrive.handles_v1(array[k.kind], j.kind));
end
$$;

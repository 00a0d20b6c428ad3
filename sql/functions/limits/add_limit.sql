-- add_limit: make these jobs count under one more limit, in addition to the limits of their kind.
-- limit_redrives uses it.
-- in:    jobs that this transaction has inserted, so no worker has claimed them
create or replace function redrive.add_limit_v1(ids bigint[], name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    update redrive.jobs j set limits = coalesce(j.limits, '{}') || add_limit_v1.name
    where j.id = any (ids) and not (j.limits @> array[add_limit_v1.name]) is true;
    select redrive.park_limited_v1(ids);
$$;

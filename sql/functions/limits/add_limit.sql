-- add_limit: these jobs count under one more name, beside those of their kind; for campaigns.
-- in:    jobs that were inserted by this transaction: nobody has claimed one
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

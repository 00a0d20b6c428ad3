-- forget_envelopes: delete the records of encrypted payloads that are refused for their age by now.
-- A payload may come up to an hour before or after its time. So its record is kept for longer than
-- two hours.
create or replace function redrive.forget_envelopes_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    with gone as (
        delete from redrive.envelopes e using (
            select o.digest from redrive.envelopes o
            where o.at < clock_timestamp() - interval '3 hours'
            order by o.at limit batch for update skip locked) p
        where e.digest = p.digest
        returning 1)
    select count(*)::int from gone
$$;

-- open_batch: begin a batch, and enqueue its callbacks as jobs that are parked until it ends.
-- in:    on_success, on_end: jobs in the form of enqueue_many, or null
--        close_within: the batch is abandoned if it is not closed within this time
-- out:   the batch's id; enqueue its jobs with it
-- errors: RD001 'field: rule'
create or replace function redrive.open_batch_v1(
    on_success jsonb, on_end jsonb, close_within interval default '1 day') returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    fault text;
    made bigint;
    callbacks bigint[];
begin
    select case
        when close_within is null or close_within not between interval '1 s' and interval '1 year'
            then 'close_within: must lie between 1 s and 1 year'
        when jsonb_typeof(on_success) <> 'object' then 'on_success: must be an object'
        when jsonb_typeof(on_end) <> 'object' then 'on_end: must be an object'
        else (select c.name || '.' || f.name || ': a callback of a batch cannot have this field'
              from (values ('on_success', on_success), ('on_end', on_end)) as c(name, job),
              jsonb_object_keys(c.job) as f(name)
              where f.name in ('run_at', 'delay', 'expires_in', 'idempotency_key', 'ordering_key',
                               'unique_for', 'unique_by', 'on_conflict')
              limit 1) end
    into fault;
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    insert into redrive.batches (close_by) values (clock_timestamp() + close_within)
    returning id into made;
    -- enqueue_many refuses a parked job without a key that would wake it. So park it afterwards.
    select array_agg((
        select e.id from redrive.enqueue_many_v1(
            case when c.job is null then '[]' else jsonb_build_array(
                c.job || '{"run_at": "9999-12-30T00:00:00Z"}') end) e) order by c.n)
    into callbacks
    from (values (1, on_success), (2, on_end)) as c(n, job);
    update redrive.jobs j
    set run_at = 'infinity',
        headers = j.headers || jsonb_build_object('batch', jsonb_build_object('id', made))
    where j.id = any (callbacks);
    update redrive.batches b set on_success = callbacks[1], on_end = callbacks[2] where b.id = made;
    return made;
end
$$;

-- interrupt_runs: close runs that were not active for a day.
-- Even a slow run changes a batch every hour.
-- out:   how many runs were closed
create or replace function redrive.interrupt_runs_v1(batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with pick as materialized (
        select r.id from redrive.runs r where r.active_at < clock_timestamp() - interval '1 day'
        limit batch for update skip locked),
    ended as (
        delete from redrive.runs r using pick p where r.id = p.id returning r.id, r.action, r.n),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select 'redrive', 'interrupt ' || e.action, 'it was not active for a day', e.n,
               jsonb_build_object('line', e.id)
        from ended e)
    select count(*)::int from ended
$$;

-- force_breaker: hold a breaker open or closed for an operator; a null state ends that.
create or replace function redrive.force_breaker_v1(name text, state text, actor text, why text)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with forced as (
        update redrive.breakers b
        set state = coalesce(force_breaker_v1.state, 'closed'), failures = 0, successes = 0,
            opened = 0, open_until = null, probe_by = null, probe_until = null,
            forced_by = case when force_breaker_v1.state is not null then actor end,
            forced_why = case when force_breaker_v1.state is not null then why end,
            changed_at = clock_timestamp()
        where b.name = force_breaker_v1.name
        returning b.name),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor,
               case when force_breaker_v1.state is null then 'reset breaker'
                    else 'force breaker' end,
               why, 1,
               jsonb_build_object('breaker', f.name, 'state', force_breaker_v1.state)
        from forced f)
    select exists (select from forced)
$$;

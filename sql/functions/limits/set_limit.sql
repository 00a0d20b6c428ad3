-- set_limit: set or remove a limit for an operator. Audited.
-- out:   true if such a limit exists or existed
-- errors: RD001 'field: rule'
-- locks: the end of the audit log last, as all functions
create or replace function redrive.set_limit_v1(
    name text, concurrency int, rate float8, actor text, why text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    existed constant boolean := exists (
        select from redrive.limits l where l.name = set_limit_v1.name);
    fault constant text := case
        when name is null or name collate "C" !~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}(:.+)?$' or length(name) > 255
            then 'name: must be like emails, customer:17 or customer:*'
        when concurrency not between 0 and 1000000
            then 'concurrency: must lie between 0 and 1000000'
        -- a wait of centuries cannot be added to an instant
        when rate < 0.000000001 or rate > 1000000
            then 'rate: must be at least one in 30 years, and at most 1000000 in a second' end;
begin
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    if concurrency is null and rate is null and not existed then
        return false;
    end if;
    perform redrive.put_limit_v1(name, concurrency, rate);
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, case when concurrency is null and rate is null then 'remove limit'
                        else 'set limit' end, why, 1,
            jsonb_build_object('name', name, 'concurrency', concurrency, 'rate', rate));
    return true;
end
$$;

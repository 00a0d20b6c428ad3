-- begin_run: write the line of the audit log that opens a run.
-- A run is a change of many rows by one login, in any number of transactions. This line is written
-- before the first of them.
-- in:    n: how many rows the run will change
-- out:   the id of the run
create or replace function redrive.begin_run_v1(
    action text, actor text, why text, n int, detail jsonb)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    run bigint;
begin
    if action not in ('purge', 'reencrypt') then
        raise exception using errcode = 'RD001', message = 'action: must be purge or reencrypt';
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (actor, action, why, n, coalesce(detail, '{}'))
    returning id into run;
    insert into redrive.runs (id, action, actor, why) values (run, action, actor, why);
    return run;
end
$$;

-- begin_run: write the line of the audit log that opens a run.
-- A run is a change of many rows by one login, in any number of transactions. This line is written
-- before the first of them.
-- in:    n: how many rows the caller expects to change. The line has no count of its own, because
--        nothing has changed yet; end_run writes the true one
--        detail: its filter and states, or its key. The log keeps no other field of it: readers of
--        the log trust ids
-- out:   the id of the run
-- errors: RD001 'action: rule'
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
    if not pg_has_role(session_user, case action when 'purge' then 'redrive_operator'
                                     else 'redrive_encryptor' end, 'usage') then
        raise exception using errcode = 'RD001',
            message = format('action: this login may not %s', action);
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    select actor, action, why, 0, jsonb_build_object('expected', n)
           || coalesce(jsonb_object_agg(d.key, d.value), '{}')
    from jsonb_each(detail) d where d.key in ('filter', 'states', 'key')
    returning id into run;
    insert into redrive.runs (id, action, actor, why) values (run, action, actor, why);
    return run;
end
$$;

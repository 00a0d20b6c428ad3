-- count_run: add the rows that one step of a run changed, in the transaction that changed them.
-- If the caller began no run, its change gets a line of the audit log of its own.
-- errors: RD001 'run: rule'
create or replace function redrive.count_run_v1(run bigint, action text, n int, detail jsonb)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    if run is null then
        insert into redrive.audit (actor, action, why, n, detail)
        select session_user, count_run_v1.action, 'not said', count_run_v1.n, count_run_v1.detail
        where count_run_v1.n > 0;
        return;
    end if;
    update redrive.runs r set n = r.n + count_run_v1.n, active_at = clock_timestamp()
    where r.id = run and r.action = count_run_v1.action and r.db_user = session_user;
    if not found then
        raise exception using errcode = 'RD001',
            message = format('run: must be a %s that this login began and has not ended',
                             count_run_v1.action);
    end if;
end
$$;

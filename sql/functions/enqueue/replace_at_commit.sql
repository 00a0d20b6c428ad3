-- replace_at_commit: replace a waiting job by another one when the transaction commits.
-- in:    job: the job that has the key; wanted: the new job, in the form of enqueue_many
-- errors: RD001 'field: rule'
create or replace function redrive.replace_at_commit_v1(job bigint, wanted jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    fault constant text := coalesce(redrive.unfit_headers_v1(wanted -> 'headers', 0),
                                    redrive.payload_fault(wanted -> 'payload'));
begin
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    insert into redrive.replacements (job, wanted) values (job, wanted);
end
$$;

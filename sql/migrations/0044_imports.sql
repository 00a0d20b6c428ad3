-- serves: 8
-- What came in as a dead letter of another system: an id of its own for each of theirs, so that none comes in twice.
-- Kept as long as idempotency keys are, and while anything of the job is left.
create table redrive.imports (
    source    text not null check (length(source) between 1 and 255),
    source_id text not null check (length(source_id) between 1 and 255),
    job       bigint not null default nextval('redrive.jobs_id_seq'),
    at        timestamptz not null default clock_timestamp(),
    primary key (source, source_id)
);
create unique index imports_job_idx on redrive.imports (job);
insert into redrive.chores (name) values ('forget_imports') on conflict do nothing;

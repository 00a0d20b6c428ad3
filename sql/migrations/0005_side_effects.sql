-- What a handler says it has done in the world: shown before somebody lets the job run again.
create table redrive.side_effects (
    job        bigint not null,
    deliveries int not null,
    at         timestamptz not null default clock_timestamp(),
    what       text not null,
    detail     jsonb not null default '{}'
);
create index side_effects_job_idx on redrive.side_effects (job);

alter table redrive.jobs add column noted boolean not null default false;   -- it has side effects on record

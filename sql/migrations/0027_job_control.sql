-- serves: 8
-- What an operator asks of single jobs, and what is needed to say why one waits.

-- Running jobs that are to be cancelled: their workers look here now and then. A row goes when its
-- job has ended, however it did.
create table redrive.cancellations (
    job       bigint primary key,
    redrives  int not null,                                -- of the job: not of its next life
    at        timestamptz not null default clock_timestamp(),
    actor     text not null,
    why       text not null,
    is_heeded boolean not null default false               -- the job ended for it
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
insert into redrive.chores (name) values ('cancel') on conflict do nothing;

-- Each worker says which breakers its kinds depend on: {kind: [name ...]}; null: none, or a worker
-- of the release before.
alter table redrive.workers add column depends_on jsonb;

-- The lines that are about a job: for its story.
create index audit_ids_idx on redrive.audit using gin ((detail -> 'ids') jsonb_path_ops);

-- serves: 8
-- Unique jobs: one of a kind with the same payload, or fields of it, for a time.

-- When the job was enqueued that succeeded with a key: a unique one is in the way for a time from then on.
alter table redrive.completions add column enqueued_at timestamptz;

-- What a transaction wants in the place of jobs that wait; seen to when it commits, so it holds no lane while it is open.
create unlogged table redrive.replacements (
    id     bigint generated always as identity primary key,
    xact   xid8 not null default pg_current_xact_id(),
    job    bigint not null,
    wanted jsonb not null                                  -- as enqueue_many takes it
);

-- It has more parameters now: two of them would be ambiguous.
drop function if exists redrive.enqueue(text, jsonb, text, timestamptz, int, int, text, text, text, interval, jsonb);

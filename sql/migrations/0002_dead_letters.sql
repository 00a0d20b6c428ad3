-- The other half: jobs set aside with their whole history, and what operators did about them.

create table redrive.campaigns (
    id         bigint generated always as identity primary key,
    created_at timestamptz not null default clock_timestamp(),
    actor      text not null check (length(actor) between 1 and 255),
    why        text not null check (length(why) between 1 and 2000),
    filter     jsonb not null,
    rate       float8 check (rate > 0),                    -- jobs per second; null = all at once
    matched    int not null,
    redriven   int not null default 0,
    blocked    jsonb not null default '{}',                -- cause -> count
    state      text not null default 'running' check (state in ('running', 'done'))
);

create table redrive.dead_letters (
    id               bigint not null,                       -- the job's, for life
    redrives         int not null,                          -- its generation: one dead letter for each
    state            text not null default 'open' check (state in ('open', 'redriven', 'resolved', 'dismissed')),
    queue            text not null,
    kind             text not null,
    reason           text not null,
    category         text not null,
    error_class      text not null,
    message          text not null,
    fingerprint      text not null,
    attempts         int not null,
    deliveries       int not null,
    losses           int not null,
    max_attempts     int,
    priority         smallint not null,
    lane             smallint not null,
    created_at       timestamptz not null,
    died_at          timestamptz not null default clock_timestamp(),
    first_failed_at  timestamptz,
    expires_at       timestamptz,
    settled_at       timestamptz,                           -- when it left the state open
    outcome          text check (outcome in ('succeeded', 'dead_again', 'cancelled')),  -- of its redrive
    blocked          text,                                  -- why the last redrive left it here
    campaign         bigint references redrive.campaigns,   -- the one that redrove it
    owner            text,
    tenant           text,
    ordering_key     text,
    idempotency_key  text,
    notes            jsonb not null default '[]',
    headers          jsonb not null,
    payload          jsonb not null,
    primary key (id, redrives)
);
create unique index dead_letters_open_idx on redrive.dead_letters (id) where state = 'open';
create index dead_letters_died_idx on redrive.dead_letters (state, died_at, id);
create index dead_letters_queue_idx on redrive.dead_letters (queue, died_at) where state = 'open';
create index dead_letters_kind_idx on redrive.dead_letters (kind, died_at) where state = 'open';
create index dead_letters_group_idx on redrive.dead_letters (fingerprint, died_at);
create index dead_letters_campaign_idx on redrive.dead_letters (campaign) where campaign is not null;

-- Append-only: no role is granted update or delete.
create table redrive.audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default clock_timestamp(),
    actor   text not null check (length(actor) between 1 and 255),  -- who they say they are
    db_user text not null default session_user,                     -- who Postgres knows they are
    action  text not null,
    why     text not null check (length(why) between 1 and 2000),
    n       int not null,
    detail  jsonb not null default '{}'
);

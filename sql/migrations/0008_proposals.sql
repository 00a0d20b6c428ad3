-- What agents propose, how often their tokens may ask, and the links of alerts that were used.
-- serves: 1

-- The agent that made the plan, and the person it works for; null: a person made the plan.
alter table redrive.campaigns add column proposed_by text;

-- Edits and mutes that a person may start. A proposed redrive is a planned campaign.
create table redrive.proposals (
    id          bigint generated always as identity primary key,
    action      text not null check (action in ('edit', 'mute')),
    proposed_by text not null check (length(proposed_by) between 1 and 255),
    login       text not null default session_user,
    why         text not null check (length(why) between 1 and 2000),
    -- edit: {"ids": [...], "patch": [...]}; mute: {"group": ..., "seconds": ...}
    detail      jsonb not null check (octet_length(detail::text) <= 65536),
    created_at  timestamptz not null default clock_timestamp(),
    state       text not null default 'open' check (state in ('open', 'started', 'rejected')),
    decided_at  timestamptz,
    decided_by  text
);

-- How often a token of agents has asked in its present hour.
create table redrive.agent_budgets (
    token     text primary key check (length(token) between 1 and 255),
    since     timestamptz not null default clock_timestamp(),
    calls     int not null default 0,
    proposals int not null default 0
);

-- Links of alerts that were used, so that none of them acts twice. Rows are kept for longer
-- than any link lasts.
create table redrive.used_links (
    link    text primary key check (length(link) between 1 and 64),
    used_at timestamptz not null default clock_timestamp()
);

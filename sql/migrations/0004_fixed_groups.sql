-- Groups that somebody resolved in a version, and groups that died in it again.
-- serves: 1

alter table redrive.groups
    -- The versions with the fix, one per release line; null: the group is not resolved.
    add column fixed_in     text[],
    add column resolved_at  timestamptz,
    add column resolved_by  text,
    add column resolved_why text,
    -- Application version -> deaths since resolved_at. A negative number belongs to deaths
    -- before it whose deltas were not folded yet.
    add column since        jsonb not null default '{}',
    -- The version with the fix that died of it; null: none did.
    add column regressed_in text,
    add column regressed_at timestamptz,
    -- It has died since a worker last compared the versions in since with fixed_in.
    add column is_unjudged  boolean not null default false;
create index groups_unjudged_idx on redrive.groups (fingerprint) where is_unjudged;

insert into redrive.chores (name) values ('regressions');

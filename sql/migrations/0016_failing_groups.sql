-- Groups begin with the first failed attempt, before any of their jobs is dead.
-- serves: 1

-- Failed attempts whose jobs were retried.
alter table redrive.groups add column failed bigint not null default 0;
alter table redrive.group_deltas add column failed bigint not null default 0;

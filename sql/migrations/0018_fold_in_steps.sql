-- serves: 8
-- Where a chore that goes on in steps left off: a block of a table, or an id.
alter table redrive.chores add column place bigint not null default 0;
insert into redrive.chores (name) values ('fold_groups') on conflict do nothing;

alter table redrive.tallies add column at timestamptz not null default now();  -- when it last grew

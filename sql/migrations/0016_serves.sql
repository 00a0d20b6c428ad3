-- serves: 8
-- The oldest program that goes on with the schema once this migration is in it, by the newest migration that it knows.
alter table redrive.migrations add column serves int;

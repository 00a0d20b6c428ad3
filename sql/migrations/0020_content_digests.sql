-- A plan holds a digest of each payload with its headers. Null: planned before this migration.
-- serves: 1
alter table redrive.campaign_jobs add column digest bytea;

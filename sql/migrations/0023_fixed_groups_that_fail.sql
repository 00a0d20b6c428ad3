-- The resolved groups that have not regressed. A worker finds the groups among them whose jobs fail.
-- serves: 1
create index groups_fixed_idx on redrive.groups (fingerprint)
    where fixed_in is not null and regressed_at is null;

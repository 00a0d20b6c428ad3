-- concurrently: a table of any size is read for it
-- serves: 1
drop index concurrently if exists redrive.audit_at_idx;
create index concurrently audit_at_idx on redrive.audit (at);

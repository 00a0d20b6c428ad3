-- concurrently: a table of any size is read for it
-- serves: 1
-- The sums of a batch, found without the rows that have been added to them.
drop index concurrently if exists redrive.batch_deltas_sums_idx;
create index concurrently batch_deltas_sums_idx on redrive.batch_deltas (batch, is_folded);
drop index concurrently if exists redrive.batch_deltas_batch_idx;

-- Rows of the series for all queues or all kinds together, so that a page adds up no pairs.
-- serves: 1

-- Rows that were recorded before have no such sums. No release has recorded any.
delete from redrive.series;

-- serves: 8
-- Who was told lately that jobs came: read and written by every producer, so neither a row, which they would wait for, nor
-- a setting of the session, which behind a pooler is everybody's. functions/enqueue/admit.sql says what its value means.
create sequence redrive.notified;

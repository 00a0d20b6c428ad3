-- Which login opened a batch, and which login ended a session. Null: before this migration.
-- serves: 1
alter table redrive.batches add column login text;
alter table redrive.batches alter column login set default session_user;
alter table redrive.ended_sessions add column login text;
alter table redrive.ended_sessions alter column login set default session_user;

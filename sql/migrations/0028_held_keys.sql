-- serves: 8
-- A death may hold its ordering key: the jobs behind it wait for what becomes of the dead letter.

-- Each worker says which of its kinds do so (mail.*: as in kinds); null: none, or a worker of the release before.
alter table redrive.workers add column holds text[];
-- null: it holds nothing
alter table redrive.dead_letters add column holds_key boolean;

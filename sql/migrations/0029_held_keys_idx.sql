-- concurrently: a table of any size is read for it, and workers bury on meanwhile
-- serves: 8
-- Which ordering keys are held now: jobs of a key with an open dead letter among these wait, if they are younger.
drop index concurrently if exists redrive.dead_letters_holding_idx;
create index concurrently dead_letters_holding_idx on redrive.dead_letters (queue, ordering_key, id)
    where holds_key and state = 'open';

-- concurrently: a table of any size is read for it, and workers bury on meanwhile
-- serves: 8
-- How many of a group are in quarantine.
drop index concurrently if exists redrive.dead_letters_quarantined_idx;
create index concurrently dead_letters_quarantined_idx on redrive.dead_letters (fingerprint)
    where quarantined and state = 'open';

-- concurrently: a table of any size is read for it
-- serves: 1
drop index concurrently if exists redrive.dead_letters_key_idx;
-- The dead letters that can still be redriven, by key. A success is remembered while one
-- of them has its key.
create index concurrently dead_letters_key_idx
    on redrive.dead_letters (kind, idempotency_key)
    where idempotency_key is not null and state in ('open', 'dismissed');

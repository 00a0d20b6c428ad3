-- serves: 8
-- Each line of the audit log is sealed with the one before it, so that a change by whoever may change anything shows.
-- Lines are numbered without a gap. Those that are there already stay outside of the chain, which begins after them.
alter table redrive.audit add column hash bytea;
create table redrive.audit_chain (
    one            boolean primary key default true check (one),
    id             bigint not null,                        -- the newest line
    hash           bytea not null,
    forgotten_id   bigint not null,                        -- the newest of those that are gone: what the oldest follows
    forgotten_hash bytea not null
) with (fillfactor = 10);
insert into redrive.audit_chain (id, hash, forgotten_id, forgotten_hash)
select v.id, v.hash, v.id, v.hash
from (select coalesce(max(a.id), 0) as id, sha256('') as hash from redrive.audit a) v;

-- It wrote lines of which nothing else was true.
drop function if exists redrive.record_audit_v1(text, text, text, int, jsonb);

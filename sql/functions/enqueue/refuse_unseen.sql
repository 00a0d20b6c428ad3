-- refuse_unseen: raise 40001 if one of these keys succeeded after the caller's snapshot.
-- in:    parallel arrays; this transaction has just inserted a job of each key
-- locks: nothing waits: a session that could complete a job of such a key waits for that insert
--        first
-- Under REPEATABLE READ and SERIALIZABLE no query shows what another transaction wrote since the
-- snapshot, but a unique index does. An insert that meets such a row fails, and the caller may
-- repeat its transaction.
create or replace function redrive.refuse_unseen_v1(kinds text[], keys text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
    if current_setting('transaction_isolation') like 'read %' then
        return;
    end if;
    insert into redrive.completions (kind, key, job)
    select v.kind, v.key, 0 from unnest(kinds, keys) as v(kind, key)
    on conflict do nothing;
    delete from redrive.completions c using unnest(kinds, keys) as v(kind, key)
    where c.kind = v.kind and c.key = v.key and c.job = 0;
end
$$;

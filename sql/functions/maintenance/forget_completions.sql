-- forget_completions: delete idempotency keys past their retention, in batches.
-- A key is kept while a dead letter that can still be redriven has it: an open one, or a dismissed
-- one that can be opened again. A redrive must find that the work was done. A kept key gets a new
-- date, so the next batch begins behind it, and it is looked at again one retention later.
-- The key $unique:done:17 is the memory of the dead letter 17 alone: see enqueue.
-- out:   how many keys were looked at, the kept ones included
-- locks: completions, skip locked
-- plan:  completions_at_idx, dead_letters_key_idx, dead_letters_pkey, completions_pkey
-- A live job needs no memory: while it has a key, no other job of that key can succeed. An import
-- may add a dead letter of an old key at any time, so it dates that key anew: see import.
create or replace function redrive.forget_completions_v1(older_than interval, batch int) returns int
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
    with old as materialized (
        select o.kind, o.key from redrive.completions o
        where o.at < clock_timestamp() - older_than
        order by o.at limit batch for update skip locked),
    judged as materialized (
        select o.kind, o.key, exists (
            select from redrive.dead_letters d
            where d.kind = o.kind and d.idempotency_key = o.key
              and d.state in ('open', 'dismissed'))
            or o.key like '$unique:done:%' and exists (
                select from redrive.dead_letters d
                where d.id = substr(o.key, length('$unique:done:') + 1)::bigint
                  and d.state in ('open', 'dismissed')) as is_needed
        from old o),
    kept as (
        update redrive.completions c set at = clock_timestamp()
        from judged j where j.is_needed and c.kind = j.kind and c.key = j.key),
    gone as (
        delete from redrive.completions c
        using judged j where not j.is_needed and c.kind = j.kind and c.key = j.key)
    select count(*)::int from judged
$$;

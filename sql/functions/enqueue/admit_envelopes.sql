-- admit_envelopes: accept each encrypted payload only once.
-- A random value in the job's header tells encrypted payloads apart: `2.<second of
-- encryption>.<...>`. The ciphertext is bound to it.
-- in:    the values
-- errors: RD001 'field: rule' for a value that was used before, or that is older than the memory of
--        used values
create or replace function redrive.admit_envelopes_v1(salts text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    kept bigint;
begin
    perform from unnest(salts) as s(salt)
    where substring(s.salt from '^2\.(\d{1,12})\.')::bigint
          not between extract(epoch from clock_timestamp()) - 3600
                  and extract(epoch from clock_timestamp()) + 3600;
    if found then
        raise exception using errcode = 'RD001', message = 'payload: was encrypted'
            ' more than an hour away from the database''s clock; encrypt it again';
    end if;
    -- the same value twice in one statement is refused, too
    insert into redrive.envelopes (digest)
    select sha256(convert_to(coalesce(s.salt, ''), 'UTF8')) from unnest(salts) as s(salt) order by 1
    on conflict do nothing;
    get diagnostics kept = row_count;
    if kept < cardinality(salts) then
        raise exception using errcode = 'RD001',
            message = 'payload: this encrypted payload was enqueued before; encrypt it again';
    end if;
end
$$;

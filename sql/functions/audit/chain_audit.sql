-- chain_audit: number each new line of the audit log after the newest one and seal it with that
-- one's seal; refuse a detail that is too long.
-- locks: the end of the chain, until commit: lines are written one after the other, by those who
--        act, and nothing that runs jobs does
-- Whoever acts comes to this last, so that nobody who has it waits for what another acts on; or
-- first, where several acts of a transaction are usual: what they act on nobody holds without it.
-- errors: RD001 'field: rule'
create or replace function redrive.chain_audit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    newest redrive.audit_chain;
begin
    if octet_length(new.detail::text) > 65536 then
        raise exception using errcode = 'RD001',
            message = 'detail: at most 65536 bytes in the audit log; act on fewer at once';
    end if;
    select * into newest from redrive.audit_chain c for update;
    new.id := newest.id + 1;
    new.hash := redrive.audit_hash_v1(newest.hash, new);
    update redrive.audit_chain c set id = new.id, hash = new.hash;
    return new;
end
$$;

create or replace trigger audit_chained before insert on redrive.audit
    for each row execute function redrive.chain_audit();

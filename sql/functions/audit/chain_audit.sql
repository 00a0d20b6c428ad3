-- chain_audit: number each new line of the audit log, and seal it with the seal of the line before.
-- A detail that is too long is refused.
-- locks: the end of the chain, until commit. Lines are written one after the other by transactions
--        that act; nothing that runs jobs waits for it
-- An action normally takes this lock last. Then no holder of the chain waits for another row. Where
-- one transaction usually acts several times, it takes the chain first, and nobody else can hold
-- the rows that it changes without the chain.
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
            message = 'detail: more than 65536 bytes for the audit log; pass fewer ids at once';
    end if;
    perform redrive.check_actor_v1(new.actor);
    select * into newest from redrive.audit_chain c for update;
    new.id := newest.id + 1;
    new.hash := redrive.audit_hash_v1(newest.hash, new);
    update redrive.audit_chain c set id = new.id, hash = new.hash;
    return new;
end
$$;

create or replace trigger audit_chained before insert on redrive.audit
    for each row execute function redrive.chain_audit();

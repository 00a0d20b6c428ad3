-- edit: correct the payloads of open dead letters, and keep the old payloads. Audited.
-- in:    ids, and for each of them: digests: sha256 of '<redrives>:<payload as text>' as the caller
--        saw it; payloads: the new payload; salts: the header that belongs to an encrypted payload,
--        else null
--        patch, paths: how the payloads were changed; the audit log gets only the paths
-- out:   id, refused: null if it was edited, else 'not_open', 'changed' since the caller saw it, or
--        'in_campaign': a live campaign will release it as it was planned
-- errors: RD001 'field: rule'
-- locks: dead letters, ascending like redrive, so that two calls never wait in a circle
-- plan:  dead_letters_open_idx, dead_letters_pkey, edits_pkey, as in_campaign
create or replace function redrive.edit_v1(
    ids bigint[], digests bytea[], payloads jsonb[], salts text[], patch jsonb, paths text[],
    actor text, why text)
returns table (id bigint, refused text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    fault text;
    held bigint[];
begin
    select f.fault into fault
    from (select case when v.payload is null then 'payload: must be an object, not null'
                      else redrive.payload_fault(v.payload) end as fault
          from unnest(ids, payloads) as v(id, payload)) f
    where f.fault is not null
    limit 1;
    fault := coalesce(fault, case
        when (select count(*) > count(distinct v.id) from unnest(ids) as v(id))
            then 'ids: must not repeat'
        when jsonb_typeof(patch) is distinct from 'array' then 'patch: must be an array' end);
    if fault is not null then
        raise exception using errcode = 'RD001', message = fault;
    end if;
    -- Wait for sessions that redrive, dismiss or edit one of these dead letters. The statements
    -- below see what they changed.
    select array_agg(l.id) into held
    from (select d.id from redrive.dead_letters d
          where d.id = any (ids) and d.state = 'open' order by d.id for update) l;
    -- An encrypted payload must not be replaced by one in the clear.
    if exists (
        select from unnest(ids, payloads, salts) as v(id, payload, salt)
        join redrive.dead_letters d on d.id = v.id and d.state = 'open'
        where d.id = any (held) and d.payload ? '$redrive'
          and (v.salt is null or jsonb_typeof(v.payload -> '$redrive' -> 'k')
                                 is distinct from 'string')) then
        raise exception using errcode = 'RD001', message = 'payload: must stay encrypted';
    end if;
    -- Nor by the ciphertext of another job: admit_envelopes refuses a value that was used before.
    perform redrive.admit_envelopes_v1(array_agg(v.salt))
    from unnest(salts) as v(salt) where v.salt is not null having count(*) > 0;
    return query
    with asked as materialized (
        select v.id, v.digest, v.payload, v.salt, v.n
        from unnest(ids, digests, payloads, salts)
            with ordinality as v(id, digest, payload, salt, n)),
    seen as materialized (
        select d.id, d.redrives, d.payload, d.headers ->> '$redrive' as salt,
               sha256(convert_to(d.redrives || ':' || d.payload::text, 'UTF8')) as digest
        from redrive.dead_letters d where d.id = any (held) and d.state = 'open'),
    planned as materialized (
        select c.id from redrive.in_campaign_v1(held) c),
    pick as materialized (
        select o.id, o.redrives, o.payload as old, o.salt as old_salt, a.payload, a.salt
        from asked a join seen o on o.id = a.id and o.digest = a.digest
        where o.id not in (select p.id from planned p)),
    kept as (
        insert into redrive.edits (
            job, n, redrives, actor, why, patch, paths, payload, salt)
        select p.id,
               coalesce((select max(e.n) from redrive.edits e where e.job = p.id), 0) + 1,
               p.redrives, actor, why, patch, paths, p.old, p.old_salt
        from pick p),
    edited as (
        update redrive.dead_letters d
        set payload = p.payload, quarantined = null,
            headers = case when p.salt is null then d.headers
                           else d.headers || jsonb_build_object('$redrive', p.salt) end
        from pick p where d.id = p.id and d.redrives = p.redrives
        returning d.id),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'edit', why, count(*),
               jsonb_build_object('ids', jsonb_agg(e.id), 'paths', paths)
        from edited e having count(*) > 0)
    select a.id, case when p.id is not null then null
                      when a.id in (select c.id from planned c) then 'in_campaign'
                      when o.id is not null then 'changed' else 'not_open' end
    from asked a left join seen o on o.id = a.id left join pick p on p.id = a.id
    order by a.n;
end
$$;

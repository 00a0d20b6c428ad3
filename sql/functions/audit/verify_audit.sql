-- verify_audit: check one step of the audit log for changed and missing lines.
-- in:    after: the line at which the previous step ended; null: start before the oldest line
-- out:   lines: how many lines were checked; place: the last of them; more: more lines follow
--        fault: the first line that was changed or that has no predecessor; or it says that the
--        newest or the oldest lines are missing
-- A person who seals all lines again passes this check. Compare the newest seal with a copy that is
-- kept elsewhere.
create or replace function redrive.verify_audit_v1(
    after bigint, batch int, out place bigint, out lines int, out more boolean, out fault text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_variable
declare
    chain redrive.audit_chain;
    seal bytea;
    said bigint;
begin
    select * into chain from redrive.audit_chain;
    if after is null then
        -- The newest line with this action records which lines retention deleted.
        select (a.detail ->> 'last')::bigint into said from redrive.audit a
        where a.action = 'forget audit' and a.detail ? 'last' order by a.id desc limit 1;
        if said <> chain.forgotten_id then
            fault := format('lines up to %s are missing', chain.forgotten_id);
        end if;
    end if;
    -- Retention may have deleted this place since the previous step.
    place := greatest(after, chain.forgotten_id);
    seal := case when place = chain.forgotten_id then chain.forgotten_hash
                 else (select a.hash from redrive.audit a where a.id = place) end;
    select count(*), coalesce(max(v.id), place),
           coalesce(fault, (array_agg(
               case when v.id <> v.previous + 1
                    then format('lines %s to %s are missing', v.previous + 1, v.id - 1)
                    when v.is_changed
                    then format('line %s or the line before it was changed', v.id) end
               order by v.id) filter (where v.is_changed or v.id <> v.previous + 1))[1])
    into lines, place, fault
    from (select a.id, lag(a.id, 1, place) over w as previous,
                 a.hash is distinct from redrive.audit_hash_v1(lag(a.hash, 1, seal) over w, a)
                     as is_changed
          from redrive.audit a where a.id > place
          window w as (order by a.id)
          order by a.id limit least(batch, 10000)) v;
    more := exists (select from redrive.audit a where a.id > place);
    if not more and fault is null
       and (place <> chain.id
            or chain.hash is distinct from coalesce(
                (select a.hash from redrive.audit a where a.id = place), chain.forgotten_hash)) then
        fault := format('the newest lines are missing: line %s was the last one', chain.id);
    end if;
end
$$;

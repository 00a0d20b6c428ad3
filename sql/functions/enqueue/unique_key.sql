-- unique_key: what makes a job unique, as an idempotency key that nobody can give: a digest of whose
-- job it is and of the fields of its payload; of an encrypted one, the keyed digest in its envelope.
-- in:    fields: null = the whole payload; one that is missing is as null; a null among them is left
--        to unique_fault
create or replace function redrive.unique_key_v1(
    queue text, tenant text, ordering_key text, payload jsonb, fields text[]) returns text
language sql immutable parallel safe
begin atomic
    select '$unique:' || encode(sha256(convert_to(jsonb_build_array(
        queue, tenant, ordering_key,
        case when payload ? '$redrive' then payload #> '{$redrive,u}'
             when fields is null then payload
             else (select jsonb_object_agg(f.name, coalesce(payload -> f.name, 'null'))
                   from unnest(fields) as f(name)
                   where f.name is not null) end)::text, 'UTF8')), 'hex');
end;

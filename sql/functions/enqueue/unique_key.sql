-- unique_key: compute the key of a unique job, in a form that no producer may give.
-- The key is a digest of queue, tenant, ordering key and the fields of the payload. For an
-- encrypted payload it uses the keyed digest in the envelope.
-- in:    fields: null: the whole payload; a missing field counts as null; unique_fault refuses a
--        null among them
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

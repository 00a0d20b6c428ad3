-- names_in: return the names in a JSON text or array; null if it has none.
create or replace function redrive.names_in_v1(names jsonb) returns text[]
language sql immutable
return case jsonb_typeof(names)
    when 'string' then array[names #>> '{}']
    when 'array' then nullif(array(select jsonb_array_elements_text(names)), '{}') end;

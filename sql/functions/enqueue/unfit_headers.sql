-- unfit_headers: return what is wrong with headers, as 'path: rule', or null.
-- They obey the rules of payloads, and are smaller.
-- in:    redrives: a redriven job returns with the headers that were added when it ran, and with what
--        was allowed when it came in
-- plan:  inlined into the caller's statement
create or replace function redrive.unfit_headers_v1(headers jsonb, redrives int) returns text
language sql immutable
return case
    when jsonb_typeof(headers) <> 'object' then 'headers: must be an object'
    when octet_length(headers::text) > 8192 + 1024 * least(redrives, 1)
        then 'headers: at most 8192 bytes'
    when redrives = 0 then 'headers' || substr(redrive.payload_fault(headers), 8) end;

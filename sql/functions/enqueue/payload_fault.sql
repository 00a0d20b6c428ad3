-- payload_fault: return what is wrong with a payload, as 'path: rule', or null.
-- in:    payload jsonb
-- out:   text
-- Each insert (admit.sql) and each edit calls it. The Python client applies the same rules before
-- it sends anything.
create or replace function redrive.payload_fault(payload jsonb) returns text
language plpgsql immutable parallel safe
as $$
declare
    size int;
begin
    -- Four stored bytes stand for at least one byte of text, so this payload need not be written
    -- out.
    if pg_column_size(payload) > 4194304 then
        return 'payload: more than 1048576 bytes, at most 262144';
    end if;
    size := octet_length(payload::text);
    if jsonb_typeof(payload) <> 'object' then
        return format('payload: must be an object, not %s', jsonb_typeof(payload));
    end if;
    -- 65 levels need 130 characters, and a number past 1.8e308 needs 309: most payloads end here.
    if size < 130 then
        return null;
    end if;
    -- encryption adds a third
    if size > 262144 and not (payload ? '$redrive' and size <= 350000) then
        return format('payload: %s bytes, at most 262144', size);
    end if;
    if jsonb_path_exists(
        payload, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")')
    then
        return 'payload: nested deeper than 64 levels';
    end if;
    if size >= 309 and jsonb_path_exists(payload, 'strict $.** ? (@.type() == "number"
        && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))')
    then
        return (
            with recursive walk(path, value) as (
                select 'payload', payload
                union all
                select w.path || n.step, n.value
                from walk w, lateral (
                    select '.' || e.key as step, e.value
                    from jsonb_each(
                        case when jsonb_typeof(w.value) = 'object' then w.value else '{}' end) e
                    union all
                    select '[' || (a.n - 1) || ']', a.value
                    from jsonb_array_elements(
                        case when jsonb_typeof(w.value) = 'array' then w.value else '[]' end)
                        with ordinality a(value, n)) n)
            select path || ': number outside the range of a double'
            from walk
            where jsonb_typeof(value) = 'number' and abs(value::numeric) > 1.7976931348623157e308
            limit 1);
    end if;
    return null;
end
$$;

-- holds: return true if a job meets all conditions.
-- Each condition is path=value, such as payload.currency=XAU or headers.source=import. Values are
-- compared as text. An encrypted payload meets no condition.
-- plan:  inlined into the caller's statement, with the caller's rights
create or replace function redrive.holds_v1(payload jsonb, headers jsonb, conditions text[])
returns boolean
language sql immutable
return not exists (
    select from unnest(conditions) as w(said)
    cross join lateral (
        select string_to_array(split_part(w.said, '=', 1), '.') as path,
               substr(w.said, strpos(w.said, '=') + 1) as value) c
    where (case c.path[1] when 'payload' then payload when 'headers' then headers end
           #>> c.path[2:]) is distinct from c.value);

-- shown_name: return a name that cannot end its quotes or continue our sentence.
create or replace function redrive.shown_name_v1(name text) returns text
language sql immutable parallel safe security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select regexp_replace(regexp_replace(
        normalize(name, nfkc),
        '["\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]',
        '?', 'g'), 'on\s+behalf\s+of|approved', '?', 'gi')
$$;

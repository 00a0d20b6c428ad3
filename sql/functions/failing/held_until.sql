-- held_until: return the time that a held job is due. No other job waits for such a time.
create or replace function redrive.held_until_v1() returns timestamptz
language sql immutable parallel safe
return timestamptz '9990-01-01 00:00:00+00';

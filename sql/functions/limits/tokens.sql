-- tokens: how many jobs a rate lets begin at an instant (the generic cell rate algorithm).
-- in:    next_at: when all that have begun are due at an even pace; a clock that went back, or a
--        rate that was raised, holds nobody up for longer than a burst lasts
create or replace function redrive.tokens_v1(
    next_at timestamptz, rate float8, burst int, at timestamptz) returns int
language sql immutable
return case when rate is not null then
    floor(burst - greatest(0, least(extract(epoch from next_at - at)::float8 * rate, burst))
          + 0.000001)::int end;

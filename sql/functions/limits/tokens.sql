-- tokens: return how many jobs a rate lets begin at a time (the generic cell rate algorithm).
-- in:    next_at: when all begun jobs are due at an even pace. If the clock was set back or the
--        rate was raised, this delays a job by no more than the length of a burst
create or replace function redrive.tokens_v1(
    next_at timestamptz, rate float8, burst int, at timestamptz) returns int
language sql immutable
return case when rate is not null then
    floor(burst - greatest(0, least(extract(epoch from next_at - at)::float8 * rate, burst))
          + 0.000001)::int end;

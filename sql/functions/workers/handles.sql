-- handles: has a worker with these kinds a handler for a job of this kind?
-- in:    kinds: as registered, mail.* for all that begin so; null: it claims whatever comes
-- plan:  the planner makes it a part of the statement that asks, so it costs no call; for that it
--        must stay one expression without a subquery
create or replace function redrive.handles_v1(kinds text[], kind text) returns boolean
language sql stable
return kinds is null or kind like any (string_to_array(
    replace(replace(array_to_string(kinds, ','), '_', '\_'), '*', '%'), ','));

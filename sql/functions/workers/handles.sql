-- handles: return true if a worker with these kinds has a handler for a job of this kind.
-- in:    kinds: as registered, such as mail.* for a prefix; null: all kinds
-- plan:  inlined into the caller's statement, so it costs no call; for that it must stay one
--        expression without a subquery
create or replace function redrive.handles_v1(kinds text[], kind text) returns boolean
language sql stable
return kinds is null or kind like any (string_to_array(
    replace(replace(array_to_string(kinds, ','), '_', '\_'), '*', '%'), ','));

-- delivery_mark: return the key of the advisory lock that marks a handler's transaction.
-- The transaction completes this delivery.
create or replace function redrive.delivery_mark_v1(id bigint, deliveries int) returns bigint
language sql immutable parallel safe
return hashint8extended(id, deliveries);

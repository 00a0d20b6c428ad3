-- delivery_mark: the advisory lock of the transaction in which a handler completes this delivery.
create or replace function redrive.delivery_mark_v1(id bigint, deliveries int) returns bigint
language sql immutable parallel safe
return hashint8extended(id, deliveries);

-- wake_slot: the bit that stands for a queue among 16 where workers are told that jobs came.
-- in:    queue
-- out:   a power of two; queues may share it, then their workers wake for each other
create or replace function redrive.wake_slot_v1(queue text) returns int
language sql immutable parallel safe
return 1 << (hashtext(queue) & 15);

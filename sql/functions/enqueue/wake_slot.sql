-- wake_slot: return the bit, one of 16, that stands for a queue when workers are told of new jobs.
-- in:    queue
-- out:   a power of two; workers of queues that share a bit wake for each other
create or replace function redrive.wake_slot_v1(queue text) returns int
language sql immutable parallel safe
return 1 << (hashtext(queue) & 15);

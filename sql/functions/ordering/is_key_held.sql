-- is_key_held: return true if a job of this ordering key waits for an older dead letter.
-- in:    job: its id; only older dead letters hold it, so that several of them continue in their
--        order
-- plan:  dead_letters_holding_idx
-- A claim and park_behind_key ask the same in their own statements.
create or replace function redrive.is_key_held_v1(queue text, ordering_key text, job bigint)
returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    return exists (
        select from redrive.dead_letters d
        where d.queue = is_key_held_v1.queue and d.ordering_key = is_key_held_v1.ordering_key
          and d.id < is_key_held_v1.job and d.holds_key and d.state = 'open');
end
$$;

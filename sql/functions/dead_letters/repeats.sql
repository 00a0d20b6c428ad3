-- repeats: return true if a redriven job died of the same failure as before, and that is news.
-- It is no news for failures that waiting may cure: EXPECTED_TO_REPEAT of
-- redrive.rules.attempts.policy.
-- in:    id, redrives: of this death; fingerprint, category
-- plan:  dead_letters_pkey
create or replace function redrive.repeats_v1(
    id bigint, redrives int, fingerprint text, category text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select fingerprint <> '' and category not in ('transient', 'throttled', 'lost') and exists (
        select from redrive.dead_letters d
        where d.id = repeats_v1.id and d.redrives = repeats_v1.redrives - 1
          and d.fingerprint = repeats_v1.fingerprint)
$$;

-- expect_chore: record that a scheduled task should run at an interval, or no more (null).
-- Then a task that never ran is missed like one that stopped. A task that is expected already keeps
-- its time, so an upgrade delays nothing.
create or replace function redrive.expect_chore_v1(chore text, every interval) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    insert into redrive.chores as c (name, every, expected_at)
    select chore, expect_chore_v1.every, clock_timestamp() where expect_chore_v1.every is not null
    on conflict (name) do update
    set every = excluded.every,
        expected_at = case when c.every = excluded.every and c.expected_at is not null
                           then c.expected_at else excluded.expected_at end;
    update redrive.chores c set every = null, expected_at = null
    where c.name = chore and expect_chore_v1.every is null;
$$;

-- finish_chore: record that workers have left nothing of a task undone, so that a backlog is seen.
-- It writes at most every ten minutes, because the tasks run more often.
-- in:    every: how often the task should get to its end
-- locks: the chore's row, skip locked
create or replace function redrive.finish_chore_v1(chore text, every interval) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with old as (
        select c.name from redrive.chores c
        where c.name = chore
          and c.ran_at not between clock_timestamp() - interval '10 minutes' and clock_timestamp()
        for update skip locked)
    update redrive.chores c set ran_at = clock_timestamp(), every = finish_chore_v1.every
    from old o where c.name = o.name;
    insert into redrive.chores (name, ran_at, every)
    select chore, clock_timestamp(), finish_chore_v1.every
    where not exists (select from redrive.chores c where c.name = chore)
    on conflict do nothing;
$$;

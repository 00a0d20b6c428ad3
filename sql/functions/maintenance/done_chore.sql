-- done_chore: a CronJob's run leaves its mark, so that its absence can be seen without looking at
-- Kubernetes.
create or replace function redrive.done_chore_v1(chore text, every interval) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into redrive.chores as c (name, ran_at, every) values (chore, clock_timestamp(), every)
    on conflict (name) do update
    set ran_at = excluded.ran_at, every = coalesce(excluded.every, c.every)
$$;

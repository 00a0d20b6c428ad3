-- queue_of: return the queue of a job's newest dead letter, or of the live job; 'other' if there is
-- neither.
create or replace function redrive.queue_of_v1(job bigint) returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select coalesce((select d.queue from redrive.dead_letters d where d.id = queue_of_v1.job
                     order by d.redrives desc limit 1),
                    (select j.queue from redrive.jobs j where j.id = queue_of_v1.job), 'other')
$$;

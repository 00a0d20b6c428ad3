-- note: add a note to the newest dead letter of a job. Audited.
-- out:   true if the job has a dead letter
create or replace function redrive.note_v1(job bigint, actor text, text text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with noted as (
        update redrive.dead_letters d
        set notes = d.notes
            || jsonb_build_object('at', clock_timestamp(), 'actor', actor, 'text', text)
        where d.id = job
          and d.redrives = (select max(o.redrives) from redrive.dead_letters o where o.id = job)
        returning d.id),
    audited as (
        insert into redrive.audit (actor, action, why, n, detail)
        select actor, 'note', text, 1, jsonb_build_object('ids', jsonb_build_array(id)) from noted)
    select exists (select from noted)
$$;

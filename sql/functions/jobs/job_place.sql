-- job_place: return the place of a job among all live jobs, as text that needs no quotes in a
-- shell.
create or replace function redrive.job_place_v1(
    queue text, priority smallint, lane smallint, run_at timestamptz, id bigint) returns text
language sql stable
return concat_ws('/', queue, priority, lane,
                 case when run_at = 'infinity' then 'infinity'
                      else to_char(run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end,
                 id);

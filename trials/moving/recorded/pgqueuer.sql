-- What of PgQueuer 1.6 the scripts read, with two failed jobs and two that wait.
create table pgqueuer (
    id bigint primary key, priority int not null, created timestamptz not null,
    updated timestamptz not null, execute_after timestamptz not null, status text not null,
    entrypoint text not null, payload bytea, attempts int not null);
create table pgqueuer_log (
    id bigint primary key, job_id bigint not null, status text not null, traceback jsonb);
insert into pgqueuer
select n, case n when 3 then 3 else 0 end, '2026-03-01 12:00Z', '2026-03-01 12:01Z',
       case n when 4 then '2999-01-01'::timestamptz else '2026-03-01 12:00Z' end,
       case when n < 3 then 'failed' else 'queued' end, 'Shop.charge',
       convert_to(format('{"invoice": %s}', n + 16), 'UTF8'), 0
from generate_series(1, 4) n;
insert into pgqueuer_log
select n, n, 'failed', jsonb_build_object(
    'exception_type', 'ValueError', 'exception_message', 'no such invoice: ' || n + 16, 'traceback',
    E'Traceback (most recent call last):\n  File "/srv/shop/jobs.py", line 12, in charge\n')
from generate_series(1, 2) n;

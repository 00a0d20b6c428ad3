-- What of Procrastinate 3.9 the scripts read, with two failed jobs and two that wait.
create table procrastinate_jobs (
    id bigserial primary key, queue_name varchar(128) not null, task_name varchar(128) not null,
    priority int default 0 not null, lock text, args jsonb default '{}' not null,
    status text default 'todo' not null, scheduled_at timestamptz, attempts int default 0 not null);
create table procrastinate_events (job_id bigint not null, type text, at timestamptz);
insert into procrastinate_jobs (queue_name, task_name, priority, lock, args, status, scheduled_at, attempts)
values ('billing', 'Shop.charge', 0, null, '{"invoice": 17}', 'failed', null, 1),
       ('billing', 'Shop.charge', 0, null, '{"invoice": 18}', 'failed', null, 3),
       ('billing', 'Shop.charge', 3, 'customer-4', '{"invoice": 19}', 'todo', null, 0),
       ('billing', 'Shop.charge', 0, null, '{"invoice": 20}', 'todo', '2999-01-01', 0);
insert into procrastinate_events values
    (1, 'deferred', '2026-03-01 12:00Z'), (1, 'failed', '2026-03-01 12:01Z'),
    (2, 'deferred', '2026-03-01 12:00Z'), (2, 'failed', '2026-03-01 12:03Z');

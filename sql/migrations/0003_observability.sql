-- What alerts and dashboards read: thresholds as data, the last snapshot of the figures, and when chores should run.

create table redrive.objectives (
    queue     text not null check (queue = '*' or queue collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),  -- '*' = all others
    objective text not null check (objective in ('dlq_added_5m', 'dlq_added_1h', 'dlq_oldest_age_seconds', 'dead_ratio',
                                                 'ready_age_seconds', 'page_on_first_dead_letter')),
    value     float8 not null check (value >= 0 and value < 'infinity'),
    primary key (queue, objective)
);
insert into redrive.objectives (queue, objective, value) values
    ('*', 'dlq_added_5m', 20), ('*', 'dlq_added_1h', 60), ('*', 'dlq_oldest_age_seconds', 259200),
    ('*', 'dead_ratio', 0.01), ('*', 'ready_age_seconds', 300), ('*', 'page_on_first_dead_letter', 0);

-- One row: the figures as of taken_at. Whoever finds it old makes it new; everybody else reads it.
create table redrive.snapshots (
    one      boolean primary key default true check (one),
    taken_at timestamptz not null default '-infinity',
    body     jsonb not null default '{}'
) with (fillfactor = 10);
insert into redrive.snapshots default values;

alter table redrive.chores add column every interval;      -- how often it should run, where that is known

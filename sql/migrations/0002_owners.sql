-- Owners of queues and kinds, objectives of kinds, and groups that wait for somebody.
-- serves: 1

-- Owners, such as teams. '*' stands for all queues, or for all kinds.
create table redrive.owners (
    queue   text not null
            check (queue = '*' or queue collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    kind    text not null default '*'
            check (kind = '*' or kind collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    -- A label of alerts, so it is a name and not a sentence.
    owner   text not null check (owner collate "C" ~ '^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$'),
    -- Where to reach the owner, such as a channel.
    contact text check (length(contact) between 1 and 255),
    primary key (queue, kind)
);

-- Thresholds that the table objectives cannot hold. Release 0.1.0 reads that table, and
-- knows neither kinds nor the age of unacknowledged groups. The kind '*' stands for all
-- kinds together.
create table redrive.kind_objectives (
    queue     text not null
              check (queue = '*' or queue collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    kind      text not null
              check (kind = '*' or kind collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    objective text not null,
    value     float8 not null check (value >= 0 and value < 'infinity'),
    primary key (queue, kind, objective),
    constraint kind_objectives_objective_check check (
        case when kind = '*' then objective = 'dlq_unacknowledged_age_seconds'
             else queue <> '*'
                  and objective in ('dlq_added_5m', 'dlq_added_1h', 'page_on_first_dead_letter')
        end)
);
insert into redrive.kind_objectives (queue, kind, objective, value) values
    ('*', '*', 'dlq_unacknowledged_age_seconds', 86400);

-- The groups that have open dead letters. A row lasts until the group has none left, and
-- so does its acknowledgement.
create table redrive.open_groups (
    fingerprint      text primary key,
    -- Of the dead letter that opened the group.
    queue            text not null,
    opened_at        timestamptz not null default clock_timestamp(),
    acknowledged_at  timestamptz,
    acknowledged_by  text,
    acknowledged_why text
) with (fillfactor = 70);
insert into redrive.open_groups (fingerprint, queue)
select g.fingerprint,
       coalesce((select d.queue from redrive.dead_letters d where d.id = g.sample limit 1), 'other')
from redrive.groups g where g.open > 0;

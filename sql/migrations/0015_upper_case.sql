-- Names of kinds and queues may have upper case: people who move in keep the names that they have.
-- serves: 1

alter table redrive.approvals
    drop constraint approvals_kind_check,
    add constraint approvals_kind_check check (kind collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.breakers
    drop constraint breakers_name_check,
    add constraint breakers_name_check check (name collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.heals
    drop constraint heals_kind_check,
    add constraint heals_kind_check check (kind collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.history_queues
    drop constraint history_queues_queue_check,
    add constraint history_queues_queue_check
        check (queue collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.kind_objectives
    drop constraint kind_objectives_kind_check,
    add constraint kind_objectives_kind_check
        check (kind = '*' or kind collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    drop constraint kind_objectives_queue_check,
    add constraint kind_objectives_queue_check
        check (queue = '*' or queue collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.objectives
    drop constraint objectives_queue_check,
    add constraint objectives_queue_check
        check (queue = '*' or queue collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.owners
    drop constraint owners_kind_check,
    add constraint owners_kind_check
        check (kind = '*' or kind collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    drop constraint owners_queue_check,
    add constraint owners_queue_check
        check (queue = '*' or queue collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');
alter table redrive.queues
    drop constraint queues_queue_check,
    add constraint queues_queue_check check (queue collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$');

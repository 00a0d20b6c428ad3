-- serves: 8
-- Jobs that have ended, of the queues that keep them. Retention drops whole days: a row lies in the partition of the day
-- on which it goes, so that each queue keeps its own for as long as it says, and no row is ever deleted by itself.

create table redrive.history_queues (
    queue text primary key check (queue collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    days  int not null check (days between 1 and 400)
);

create table redrive.history (
    drop_on         date not null,                         -- in UTC
    id              bigint not null,
    state           text not null,                         -- completed | cancelled
    queue           text not null,
    kind            text not null,
    attempt         int not null,
    deliveries      int not null,
    redrives        int not null,
    priority        smallint not null,
    created_at      timestamptz not null,
    run_at          timestamptz not null,                  -- when its last attempt was due
    ended_at        timestamptz not null default clock_timestamp(),
    worker          text,
    idempotency_key text,
    ordering_key    text,
    tenant          text,
    headers         jsonb not null,
    payload         jsonb not null
) partition by list (drop_on);
create index history_id_idx on redrive.history (id);
create index history_key_idx on redrive.history (idempotency_key, id) where idempotency_key is not null;
create index history_ordering_idx on redrive.history (ordering_key, id) where ordering_key is not null;
create index history_tenant_idx on redrive.history (tenant, id) where tenant is not null;

-- For a day whose partition is not there yet: no completion fails for want of one.
create table redrive.history_default partition of redrive.history default;

insert into redrive.chores (name) values ('history') on conflict do nothing;

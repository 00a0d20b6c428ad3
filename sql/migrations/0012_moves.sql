-- Moves of a tenant's jobs between cells: see functions/moves.
-- serves: 1

-- Moves out of this database, and into it. Both databases know a move by the same id.
create table redrive.moves (
    id          uuid primary key,
    tenant      text not null check (length(tenant) between 1 and 255),
    -- The other cell, as the file of cells names it.
    cell        text not null check (length(cell) between 1 and 63),
    is_incoming boolean not null,
    started_at  timestamptz not null default clock_timestamp(),
    ended_at    timestamptz
);
create unique index moves_open_idx on redrive.moves (tenant, is_incoming) where ended_at is null;

-- Jobs and dead letters that were taken out of this database. `data` holds all rows of the job
-- until the other database has it. The rest is kept for as long as idempotency keys.
create table redrive.moved_jobs (
    id           bigint primary key,
    move         uuid not null,
    at           timestamptz not null default clock_timestamp(),
    queue        text not null,
    ordering_key text,
    data         jsonb,
    -- Its id in the other database; null: a job there had its idempotency key.
    new_id       bigint
);
create index moved_jobs_left_idx on redrive.moved_jobs (move, id) where data is not null;

-- One move at a time: hold_run locks this table.
create table redrive.move_lock ();
alter table redrive.move_lock replica identity full;

alter table redrive.completions
    -- Null: the job had none, or it succeeded before this migration.
    add column tenant text,
    -- The job has not succeeded. It was moved to another cell with its key.
    add column is_moved boolean;

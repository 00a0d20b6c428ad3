-- serves: 8
-- Jobs that come by the clock. What code declares is one thing, the row that says what is due next
-- another: it is kept when the code changes, and while no worker is up.

-- What workers said of a schedule, each version of it once. Of those that live workers declare the
-- one that came last holds, whoever starts again meanwhile.
create table redrive.schedule_declarations (
    id          bigint generated always as identity primary key,
    schedule    text not null,
    kind        text not null,
    queue       text not null,
    cron        text not null,
    tz          text not null,
    catch_up    text not null,
    payload     jsonb not null,
    digest      bytea not null,                            -- of all of the above
    declared_at timestamptz not null default clock_timestamp(),  -- by whoever did it last
    constraint schedule_declarations_once unique (schedule, digest),
    constraint schedule_declarations_catch_up check (catch_up in ('skip', 'one', 'all'))
);

create table redrive.schedule_declarers (
    worker      int not null references redrive.workers on delete cascade,
    declaration bigint not null references redrive.schedule_declarations on delete cascade,
    version     text,                                      -- of the application
    primary key (worker, declaration)
);
create index schedule_declarers_declaration_idx on redrive.schedule_declarers (declaration);

create table redrive.schedules (
    name        text primary key,
    declaration bigint not null references redrive.schedule_declarations,  -- next_at is by this one
    next_at     timestamptz,                               -- null: to be worked out
    since       timestamptz not null default clock_timestamp(),  -- when it last was to be
    last_at     timestamptz,                               -- the last slot that was fired
    last_job    bigint,
    paused_at   timestamptz,
    paused_by   text,
    paused_why  text
) with (fillfactor = 50);
create index schedules_declaration_idx on redrive.schedules (declaration);

insert into redrive.chores (name) values ('schedules') on conflict do nothing;

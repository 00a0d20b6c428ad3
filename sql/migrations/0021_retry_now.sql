-- Campaigns over failing jobs, and groups whose failing jobs are held.
-- serves: 1

-- Of a failing job, how often it had been claimed when the campaign was planned. Null: a dead letter.
alter table redrive.campaign_jobs add column deliveries int;

-- Groups whose failing jobs wait until they are released.
create table redrive.held_groups (
    fingerprint text primary key,
    at          timestamptz not null default clock_timestamp(),
    actor       text not null check (length(actor) between 1 and 255),
    why         text not null check (length(why) between 1 and 2000),
    -- Set when it is released: its jobs are due within this time. The row goes when all are.
    spread      interval
);

insert into redrive.chores (name) values ('hold');

-- serves: 8
-- A clock that runs only while workers can reach the database: nobody's silence counts for longer.
-- Not `clock_timestamp()`, which also runs through an outage and jumps when it is set.
create table redrive.contact (
    one     boolean primary key default true check (one),
    at      timestamptz not null default clock_timestamp(),  -- when it was last advanced
    elapsed interval not null default '0'                    -- what it showed then
) with (fillfactor = 10);
insert into redrive.contact default values;

alter table redrive.workers add column heard interval not null default '0';  -- what it showed at the last beat

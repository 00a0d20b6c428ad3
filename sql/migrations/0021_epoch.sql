-- serves: 8
-- Claims do not wait for the disk. A crash or a failover takes the newest of them back, and their ids would come again
-- while a worker behind a pooler, which does not see the crash, remembers its places as of them. Nothing that is
-- unlogged outlives a crash or comes to a standby: where this is empty, the next claim begins an epoch.
create unlogged table redrive.epoch (
    since    bigint not null,                         -- claims before this one may be of a time that was taken back
    is_known boolean primary key default true check (is_known)
);
insert into redrive.epoch (since) values (0);

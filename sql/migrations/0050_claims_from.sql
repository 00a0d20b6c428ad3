-- serves: 2
-- Where the live claims begin: of a worker, and of all. Dead rows that an open snapshot keeps are below, and no scan meets them.
alter table redrive.workers add column claims_from bigint not null default 0;
alter table redrive.epoch add column claims_from bigint not null default 0;

-- Locks that only our functions can take, instead of advisory locks, which everybody can take who may
-- connect. No row of lane_marks is ever changed, so locking one fails in no isolation level.
-- serves: 1
create table redrive.lane_marks (n smallint primary key);
insert into redrive.lane_marks select generate_series(0, 1023);
create table redrive.start_lock ();
alter table redrive.start_lock replica identity full;

drop function if exists redrive.lane_mark_v1(text, smallint, smallint);

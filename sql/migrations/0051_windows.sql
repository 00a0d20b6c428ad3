-- serves: 8
-- The deaths of a campaign are counted among jobs that were released one after another, because
-- jobs that are retried end later than the others.
alter table redrive.campaigns rename column latest_ended to judged_from;
alter table redrive.campaigns rename column latest_dead to window_dead;
update redrive.campaigns set judged_from = place, window_dead = 0;

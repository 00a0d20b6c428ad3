-- serves: 8
-- What grows has an end: how long each thing is kept is data, like the thresholds of the alerts, so that every worker
-- keeps the same, and none that was taken over can shorten it.
create table redrive.retention (
    what text primary key check (what in ('audit', 'campaigns', 'groups', 'keys', 'names')),
    keep interval not null,
    constraint retention_keep_check check (
        keep >= case what when 'audit' then interval '30 days' else interval '1 hour' end)
);
insert into redrive.retention (what, keep) values
    ('audit', '400 days'), ('campaigns', '400 days'), ('groups', '90 days'), ('keys', '30 days'), ('names', '90 days');
insert into redrive.chores (name) values
    ('forget'), ('forget_campaigns'), ('forget_failures'), ('forget_side_effects')
on conflict do nothing;

drop index redrive.groups_last_seen_idx;                       -- nobody read it
create index groups_closed_idx on redrive.groups (last_seen) where open = 0;

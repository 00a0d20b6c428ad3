-- serves: 8
-- Others come first: how late the oldest job of its queues was when a campaign began, and since when it puts nothing back
-- because that has grown.
alter table redrive.campaigns
    add column late_before float8,
    add column held_since  timestamptz;

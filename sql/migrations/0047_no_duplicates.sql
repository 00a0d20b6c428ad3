-- concurrently: after the index that another of these builds
-- serves: 8
-- Each entry of these ends with the id, so no two are alike, and to look for some before a page is split was in vain: 3 of a
-- hundred instructions of the database for a plain job of a bulk load, 4 for one with an ordering key.
alter index redrive.jobs_due_idx set (deduplicate_items = off);
alter index redrive.jobs_ordering_idx set (deduplicate_items = off);
alter index redrive.jobs_ordering_active_idx set (deduplicate_items = off);

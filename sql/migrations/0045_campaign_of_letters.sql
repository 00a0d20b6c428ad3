-- serves: 8
-- No foreign key of each dead letter: whoever puts a chunk of them back sees once that their campaign is there. The key asked
-- again for each, a sixth of what a redrive costs, and of each that was buried.
lock table redrive.dead_letters, redrive.campaigns in access exclusive mode;  -- a key belongs to both
alter table redrive.dead_letters drop constraint if exists dead_letters_campaign_fkey;

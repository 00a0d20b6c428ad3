-- serves: 8
-- What died once more of what it had died of before is left out of redrives of many, until somebody looks at it.
alter table redrive.dead_letters add column quarantined boolean;  -- null: it is not

-- Which versions of a kind's handlers heal: when all its workers run one, its dead letters that a deploy may have fixed
-- are tried, each group once.
create table redrive.heals (
    kind     text not null check (kind collate "C" ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    version  text not null check (length(version) between 1 and 255),
    canaries int not null check (canaries between 1 and 1000),
    max_rate float8 check (max_rate > 0),
    first_at timestamptz not null default clock_timestamp(),
    place    text not null default '',                     -- groups up to this one have had their turn
    ended_at timestamptz,                                  -- all have, or a newer version was there
    primary key (kind, version)
);

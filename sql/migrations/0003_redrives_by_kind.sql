-- serves: 1
-- What handlers say about redrives of their kinds. A kind may be `mail.*`.
create table redrive.kind_redrives (
    kind          text primary key,
    -- Redrives per second that may begin, over all campaigns; null: no limit.
    rate          float8 check (rate > 0),
    -- false: its jobs must not run twice without a confirmation of their own.
    is_repeatable boolean not null default true
);
-- Its successor takes more of the dead letter, and reads the filter itself.
drop function if exists redrive.redrive_obstacle_v1(text, text, int, text, int, boolean);
drop function if exists redrive.with_quarantined_v1(jsonb);

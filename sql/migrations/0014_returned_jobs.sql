-- Jobs that come back keep their place: a claim reads their lane from its beginning.
-- serves: 1

alter table redrive.lanes
    -- Jobs came back behind the place up to which the lane has been claimed.
    add column has_returned boolean not null default false;

create index lanes_returned_idx on redrive.lanes (queue, priority, lane) where has_returned;

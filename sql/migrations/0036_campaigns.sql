-- serves: 8
-- A campaign lives in the database: whoever is alive carries it on, and anybody sees how far it is. One whose planner is
-- null is carried out by its client, as those of the release before are.
alter table redrive.campaigns
    alter column why drop not null,                        -- a plan has none
    add column planned_by    text,                         -- who they said they were
    add column planned_login text,                         -- who Postgres knew they were
    add column plan          jsonb not null default '{}',  -- what was seen when it was planned
    add column max_redrives  int not null default 5,
    add column canaries      int not null default 0 check (canaries >= 0),
    add column abort_share   float8 not null default 0.1 check (abort_share > 0 and abort_share <= 1),
    add column not_before    timestamptz,
    add column conditions    jsonb not null default '{}',
    add column started_at    timestamptz,
    add column ended_at      timestamptz,
    add column said          text,                         -- why it is in its state
    -- A step is taken by whoever knows its number: of two that looked at the same time one comes too late.
    add column step          int not null default 0,
    add column place         int not null default 0,       -- so many of its jobs have had their turn
    add column fed_at        timestamptz,                  -- up to when its rate is used up
    add column succeeded     int not null default 0,
    add column dead_again    int not null default 0,
    add column cancelled     int not null default 0,
    -- what is judged: since it was started or resumed, and of the latest hundred
    add column round_fed     int not null default 0,
    add column round_ended   int not null default 0,
    add column round_dead    int not null default 0,
    add column latest_ended  int not null default 0,
    add column latest_dead   int not null default 0,
    drop constraint campaigns_state_check,
    add constraint campaigns_state_check check (state in (
        'planned', 'waiting', 'canary', 'ramp', 'running', 'paused', 'aborted', 'cancelled', 'done', 'interrupted'));

-- What a plan froze, the oldest first. Without a foreign key: a million rows would each ask for their campaign.
create table redrive.campaign_jobs (
    campaign bigint not null,
    n        int not null,
    id       bigint not null,
    redrives int not null,                                 -- the generation that was seen
    -- null: its turn has not come; redriven; then succeeded, dead_again, cancelled; or what kept it back
    state    text,
    primary key (campaign, n)
) with (fillfactor = 90);
create index campaign_jobs_redriven_idx on redrive.campaign_jobs (campaign, n) where state = 'redriven';

-- Those that are not over: few among those of a year.
create index campaigns_live_idx on redrive.campaigns (id)
    where planned_login is not null
      and (state in ('waiting', 'canary', 'ramp', 'running') or redriven > succeeded + dead_again + cancelled);
create index campaigns_planned_idx on redrive.campaigns (created_at) where state = 'planned';
insert into redrive.chores (name) values ('campaign') on conflict do nothing;

-- serves: 8
-- A campaign that nobody carries on says so.
alter table redrive.campaigns
    add column active_at timestamptz not null default now(),  -- when a chunk of it last went back to work
    drop constraint campaigns_state_check,
    add constraint campaigns_state_check check (state in ('running', 'done', 'interrupted'));
create index campaigns_running_idx on redrive.campaigns (active_at) where state = 'running';

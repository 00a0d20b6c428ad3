-- The schema as it stands, to be read: `make generate` makes this from migrations/, functions/ and
-- roles.sql, and `redrive migrate` applies those. What a view or function does is in the file of
-- its name. Everything belongs to redrive_owner, which cannot log in.

create schema redrive;
grant usage on schema redrive to redrive_agent, redrive_encryptor, redrive_operator,
    redrive_producer, redrive_viewer, redrive_worker;

create table redrive.agent_budgets (
    token text not null,
    since timestamptz not null default clock_timestamp(),
    calls int not null default 0,
    proposals int not null default 0,
    constraint agent_budgets_pkey primary key (token),
    constraint agent_budgets_token_check check (length(token) >= 1 and length(token) <= 255)
);

create table redrive.approvals (
    kind text not null,
    login text not null default session_user,
    at timestamptz not null default clock_timestamp(),
    constraint approvals_pkey primary key (kind),
    constraint approvals_kind_check check ((kind collate "C") ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$')
);
grant select on redrive.approvals to redrive_operator;

create table redrive.audit (
    id bigint generated always as identity not null,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    db_user text not null default session_user,
    action text not null,
    why text not null,
    n int not null,
    detail jsonb not null default '{}',
    hash bytea,
    constraint audit_pkey primary key (id),
    constraint audit_actor_check check (length(actor) >= 1 and length(actor) <= 255),
    constraint audit_detail_shape check (jsonb_typeof(detail) = 'object') not valid,
    constraint audit_why_check check (length(why) >= 1 and length(why) <= 2000),
    constraint audit_why_said check (why ~ '\S') not valid
);
create index audit_at_idx on redrive.audit (at);
create index audit_ids_idx on redrive.audit using gin ((detail -> 'ids') jsonb_path_ops);
create index audit_marks_idx on redrive.audit (at) where action = any (array['redrive', 'end
    redrive', 'abort redrive', 'cancel redrive', 'pause redrive', 'resume redrive', 'pause',
    'resume', 'force breaker', 'reset breaker', 'set limit', 'remove limit', 'edit', 'purge', 'pause
    schedule', 'resume schedule', 'run schedule']);
create trigger audit_chained before insert on redrive.audit for each row execute function
    redrive.chain_audit();
grant select on redrive.audit to redrive_agent, redrive_operator;

create table redrive.audit_chain (
    one boolean not null default true,
    id bigint not null,
    hash bytea not null,
    forgotten_id bigint not null,
    forgotten_hash bytea not null,
    constraint audit_chain_pkey primary key (one),
    constraint audit_chain_one_check check (one)
) with (fillfactor=10);
grant select on redrive.audit_chain to redrive_operator;

create table redrive.batch_deltas (
    batch bigint not null,
    total bigint not null default 0,
    succeeded bigint not null default 0,
    dead bigint not null default 0,
    cancelled bigint not null default 0,
    is_folded boolean not null default false
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
alter table redrive.batch_deltas replica identity full;
create index batch_deltas_new_idx on redrive.batch_deltas (batch) where not is_folded;
create index batch_deltas_sums_idx on redrive.batch_deltas (batch, is_folded);
grant select on redrive.batch_deltas to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.batches (
    id bigint generated always as identity not null,
    created_at timestamptz not null default clock_timestamp(),
    close_by timestamptz not null,
    closed_at timestamptz,
    ended_at timestamptz,
    over_at timestamptz,
    outcome text,
    on_success bigint,
    on_end bigint,
    login text default session_user,
    constraint batches_pkey primary key (id),
    constraint batches_outcome_check check (outcome = any (array['succeeded', 'ended',
        'abandoned']))
) with (fillfactor=70);
create index batches_open_idx on redrive.batches (close_by) where closed_at is null and over_at is
    null;
create index batches_over_idx on redrive.batches (over_at) where over_at is not null;
grant select on redrive.batches to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.breakers (
    name text not null,
    state text not null default 'closed',
    failures int not null default 0,
    successes int not null default 0,
    window_at timestamptz not null default clock_timestamp(),
    opened int not null default 0,
    opened_at timestamptz,
    open_until timestamptz,
    probe_by int,
    probe_until timestamptz,
    forced_by text,
    forced_why text,
    changed_at timestamptz not null default clock_timestamp(),
    constraint breakers_pkey primary key (name),
    constraint breakers_name_check check ((name collate "C") ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint breakers_state_check check (state = any (array['closed', 'open', 'half_open']))
) with (fillfactor=30, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);
grant select on redrive.breakers to redrive_agent, redrive_operator, redrive_worker;

create table redrive.campaign_jobs (
    campaign bigint not null,
    n int not null,
    id bigint not null,
    redrives int not null,
    state text,
    digest bytea,
    deliveries int,
    constraint campaign_jobs_pkey primary key (campaign, n)
) with (fillfactor=90);
create index campaign_jobs_redriven_idx on redrive.campaign_jobs (campaign, n) where state =
    'redriven';
grant select on redrive.campaign_jobs to redrive_operator;

create table redrive.campaigns (
    id bigint generated always as identity not null,
    created_at timestamptz not null default clock_timestamp(),
    actor text not null,
    why text,
    filter jsonb not null,
    rate float8,
    matched int not null,
    redriven int not null default 0,
    blocked jsonb not null default '{}',
    state text not null default 'running',
    active_at timestamptz not null default now(),
    db_user text default session_user,
    planned_by text,
    planned_login text,
    plan jsonb not null default '{}',
    max_redrives int not null default 5,
    canaries int not null default 0,
    abort_share float8 not null default 0.1,
    not_before timestamptz,
    conditions jsonb not null default '{}',
    started_at timestamptz,
    ended_at timestamptz,
    said text,
    step int not null default 0,
    place int not null default 0,
    fed_at timestamptz,
    succeeded int not null default 0,
    dead_again int not null default 0,
    cancelled int not null default 0,
    round_fed int not null default 0,
    round_ended int not null default 0,
    round_dead int not null default 0,
    judged_from int not null default 0,
    window_dead int not null default 0,
    late_before float8,
    held_since timestamptz,
    proposed_by text,
    constraint campaigns_pkey primary key (id),
    constraint campaigns_abort_share_check check (abort_share > 0::float8 and abort_share <=
        1::float8),
    constraint campaigns_actor_check check (length(actor) >= 1 and length(actor) <= 255),
    constraint campaigns_blocked_shape check (jsonb_typeof(blocked) = 'object') not valid,
    constraint campaigns_canaries_check check (canaries >= 0),
    constraint campaigns_conditions_shape check (jsonb_typeof(conditions) = 'object') not valid,
    constraint campaigns_filter_shape check (jsonb_typeof(filter) = 'object') not valid,
    constraint campaigns_plan_shape check (jsonb_typeof(plan) = 'object') not valid,
    constraint campaigns_rate_check check (rate > 0::float8),
    constraint campaigns_state_check check (state = any (array['planned', 'waiting', 'canary',
        'ramp', 'running', 'paused', 'aborted', 'cancelled', 'done'])),
    constraint campaigns_why_check check (length(why) >= 1 and length(why) <= 2000)
);
create index campaigns_live_idx on redrive.campaigns (id) where planned_login is not null and
    ((state = any (array['waiting', 'canary', 'ramp', 'running'])) or redriven > (succeeded +
    dead_again + cancelled));
create index campaigns_planned_idx on redrive.campaigns (created_at) where state = 'planned';
grant select on redrive.campaigns to redrive_agent, redrive_operator, redrive_worker;

create table redrive.cancellations (
    job bigint not null,
    redrives int not null,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    why text not null,
    is_heeded boolean not null default false,
    constraint cancellations_pkey primary key (job)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=100);

create table redrive.checkpoints (
    job bigint not null,
    deliveries int not null,
    at timestamptz not null default clock_timestamp(),
    data jsonb not null,
    constraint checkpoints_pkey primary key (job),
    constraint checkpoints_data_shape check (jsonb_typeof(data) = 'object') not valid
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
grant select on redrive.checkpoints to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.chores (
    name text not null,
    ran_at timestamptz not null default '-infinity'::timestamptz,
    every interval,
    last_key text[],
    place bigint not null default 0,
    expected_at timestamptz,
    marked_by text,
    constraint chores_pkey primary key (name)
) with (fillfactor=50);
grant select on redrive.chores to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.claims (
    id bigint generated always as identity not null,
    worker int not null,
    queue text not null,
    priority smallint not null,
    lane smallint not null,
    upto timestamptz not null,
    upto_id bigint not null,
    kinds text[],
    ids bigint[] not null,
    constraint claims_pkey primary key (id)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000,
    autovacuum_vacuum_insert_scale_factor=0, autovacuum_vacuum_insert_threshold=20000,
    autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=20000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
create index claims_lane_idx on redrive.claims (queue, priority, lane, id);
create index claims_worker_idx on redrive.claims (worker, id);
grant select on redrive.claims to redrive_agent, redrive_operator, redrive_viewer, redrive_worker;

create table redrive.completions (
    kind text not null,
    key text not null,
    job bigint not null,
    at timestamptz not null default clock_timestamp(),
    enqueued_at timestamptz,
    constraint completions_pkey primary key (kind, key)
);
create index completions_at_idx on redrive.completions (at);
grant select on redrive.completions to redrive_agent, redrive_operator;

create table redrive.contact (
    one boolean not null default true,
    at timestamptz not null default clock_timestamp(),
    elapsed interval not null default '00:00:00'::interval,
    constraint contact_pkey primary key (one),
    constraint contact_one_check check (one)
) with (fillfactor=10);
grant select on redrive.contact to redrive_agent, redrive_operator, redrive_viewer, redrive_worker;

create table redrive.dead_letters (
    id bigint not null,
    redrives int not null,
    state text not null default 'open',
    queue text not null,
    kind text not null,
    reason text not null,
    category text not null,
    error_class text not null,
    message text not null,
    fingerprint text not null,
    attempts int not null,
    deliveries int not null,
    losses int not null,
    max_attempts int,
    priority smallint not null,
    lane smallint not null,
    created_at timestamptz not null,
    died_at timestamptz not null default clock_timestamp(),
    first_failed_at timestamptz,
    expires_at timestamptz,
    settled_at timestamptz,
    outcome text,
    blocked text,
    campaign bigint,
    owner text,
    tenant text,
    ordering_key text,
    idempotency_key text,
    notes jsonb not null default '[]',
    headers jsonb not null,
    payload jsonb not null,
    environment text,
    version text,
    holds_key boolean,
    batch bigint,
    quarantined boolean,
    constraint dead_letters_pkey primary key (id, redrives),
    constraint dead_letters_notes_shape check (jsonb_typeof(notes) = 'array') not valid,
    constraint dead_letters_outcome_check check (outcome = any (array['succeeded', 'dead_again',
        'cancelled'])),
    constraint dead_letters_state_check check (state = any (array['open', 'redriven', 'resolved',
        'dismissed']))
);
create index dead_letters_campaign_idx on redrive.dead_letters (campaign) where campaign is not
    null;
create index dead_letters_died_idx on redrive.dead_letters (state, died_at, id);
create index dead_letters_group_idx on redrive.dead_letters (fingerprint, died_at);
create index dead_letters_holding_idx on redrive.dead_letters (queue, ordering_key, id) where
    holds_key and state = 'open';
create index dead_letters_key_idx on redrive.dead_letters (kind, idempotency_key) where
    idempotency_key is not null and (state = any (array['open', 'dismissed']));
create index dead_letters_kind_idx on redrive.dead_letters (kind, died_at) where state = 'open';
create index dead_letters_quarantined_idx on redrive.dead_letters (fingerprint) where quarantined
    and state = 'open';
create index dead_letters_queue_idx on redrive.dead_letters (queue, died_at) where state = 'open';
create unique index dead_letters_open_idx on redrive.dead_letters (id) where state = 'open';
create trigger dead_letters_buried after insert on redrive.dead_letters referencing new table as
    fresh for each statement execute function redrive.count_buried();
create trigger dead_letters_moved after update on redrive.dead_letters referencing old table as gone
    new table as fresh for each statement execute function redrive.count_moved();
create trigger dead_letters_purged after delete on redrive.dead_letters referencing old table as
    gone for each statement execute function redrive.count_purged();
grant select on redrive.dead_letters to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.deltas (
    queue text not null,
    kind text not null,
    event text not null,
    reason text not null default '',
    n bigint not null
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
alter table redrive.deltas replica identity full;

create table redrive.edits (
    job bigint not null,
    n int not null,
    redrives int not null,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    login text not null default session_user,
    why text not null,
    patch jsonb not null,
    paths text[] not null,
    payload jsonb not null,
    salt text,
    constraint edits_pkey primary key (job, n),
    constraint edits_actor_check check (length(actor) >= 1 and length(actor) <= 255),
    constraint edits_patch_shape check (jsonb_typeof(patch) = 'array' and not patch @?
        '$[*]?((@.type() != "object" || !(exists (@."op"))) || !(exists (@."path")))'::jsonpath) not
        valid,
    constraint edits_why_check check (length(why) >= 1 and length(why) <= 2000)
);
grant select on redrive.edits to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.effects (
    key text not null,
    at timestamptz not null default clock_timestamp(),
    constraint effects_pkey primary key (key),
    constraint effects_key_check check (length(key) >= 1 and length(key) <= 255)
);
create index effects_at_idx on redrive.effects (at);

create table redrive.ended_sessions (
    session text not null,
    ended_at timestamptz not null default clock_timestamp(),
    login text default session_user,
    constraint ended_sessions_pkey primary key (session),
    constraint ended_sessions_session_check check (length(session) >= 1 and length(session) <= 64)
);
grant select on redrive.ended_sessions to redrive_operator, redrive_viewer;

create table redrive.envelopes (
    digest bytea not null,
    at timestamptz not null default clock_timestamp(),
    constraint envelopes_pkey primary key (digest)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000,
    autovacuum_vacuum_cost_delay=0);
create index envelopes_at_idx on redrive.envelopes (at);

create table redrive.epoch (
    since bigint not null,
    is_known boolean not null default true,
    claims_from bigint not null default 0,
    constraint epoch_pkey primary key (is_known),
    constraint epoch_is_known_check check (is_known)
);

create table redrive.failures (
    job bigint not null,
    deliveries int not null,
    attempt int not null,
    at timestamptz not null default clock_timestamp(),
    worker text,
    error_class text not null,
    message text not null,
    category text not null,
    fingerprint text not null,
    detail jsonb not null default '{}',
    constraint failures_pkey primary key (job, deliveries),
    constraint failures_detail_shape check (jsonb_typeof(detail) = 'object') not valid
) with (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=5000,
    autovacuum_vacuum_cost_delay=0);
grant select on redrive.failures to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.full_scans (
    queue text not null,
    priority smallint not null,
    lane smallint not null,
    n bigint not null,
    next_at timestamptz not null,
    kinds text[],
    constraint full_scans_pkey primary key (queue, priority, lane, n)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table redrive.group_deltas (
    fingerprint text not null,
    kind text not null,
    category text not null,
    error_class text not null,
    message text not null,
    sample bigint not null,
    version text not null default '',
    added bigint not null,
    opened bigint not null,
    at timestamptz not null default clock_timestamp(),
    failed bigint not null default 0
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
alter table redrive.group_deltas replica identity full;

create table redrive.groups (
    fingerprint text not null,
    kind text not null,
    category text not null,
    error_class text not null,
    message text not null,
    sample bigint not null,
    total bigint not null,
    open bigint not null,
    first_seen timestamptz not null,
    last_seen timestamptz not null,
    versions jsonb not null default '{}',
    muted_until timestamptz,
    muted_by text,
    muted_why text,
    fixed_in text[],
    resolved_at timestamptz,
    resolved_by text,
    resolved_why text,
    since jsonb not null default '{}',
    regressed_in text,
    regressed_at timestamptz,
    is_unjudged boolean not null default false,
    failed bigint not null default 0,
    constraint groups_pkey primary key (fingerprint),
    constraint groups_since_shape check (jsonb_typeof(since) = 'object') not valid,
    constraint groups_versions_shape check (jsonb_typeof(versions) = 'object') not valid
) with (fillfactor=50);
create index groups_closed_idx on redrive.groups (last_seen) where open = 0;
create index groups_fixed_idx on redrive.groups (fingerprint) where fixed_in is not null and
    regressed_at is null;
create index groups_unjudged_idx on redrive.groups (fingerprint) where is_unjudged;
create trigger groups_came after insert on redrive.groups for each row when (new.open > 0) execute
    function redrive.track_open();
create trigger groups_opened_or_closed after update of open on redrive.groups for each row when
    ((old.open > 0) <> (new.open > 0)) execute function redrive.track_open();
grant select on redrive.groups to redrive_agent, redrive_operator;

create table redrive.heals (
    kind text not null,
    version text not null,
    canaries int not null,
    max_rate float8,
    first_at timestamptz not null default clock_timestamp(),
    place text not null default '',
    ended_at timestamptz,
    constraint heals_pkey primary key (kind, version),
    constraint heals_canaries_check check (canaries >= 1 and canaries <= 1000),
    constraint heals_kind_check check ((kind collate "C") ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint heals_max_rate_check check (max_rate > 0::float8),
    constraint heals_version_check check (length(version) >= 1 and length(version) <= 255)
);
grant select on redrive.heals to redrive_operator;

create table redrive.held_groups (
    fingerprint text not null,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    why text not null,
    spread interval,
    constraint held_groups_pkey primary key (fingerprint),
    constraint held_groups_actor_check check (length(actor) >= 1 and length(actor) <= 255),
    constraint held_groups_why_check check (length(why) >= 1 and length(why) <= 2000)
);
grant select on redrive.held_groups to redrive_agent, redrive_operator;

create table redrive.history_default (
    drop_on date not null,
    id bigint not null,
    state text not null,
    queue text not null,
    kind text not null,
    attempt int not null,
    deliveries int not null,
    redrives int not null,
    priority smallint not null,
    created_at timestamptz not null,
    run_at timestamptz not null,
    ended_at timestamptz not null default clock_timestamp(),
    worker text,
    idempotency_key text,
    ordering_key text,
    tenant text,
    headers jsonb not null,
    payload jsonb not null
);
alter table redrive.history_default replica identity full;
create index history_default_id_idx on redrive.history_default (id);
create index history_default_idempotency_key_id_idx on redrive.history_default (idempotency_key, id)
    where idempotency_key is not null;
create index history_default_ordering_key_id_idx on redrive.history_default (ordering_key, id) where
    ordering_key is not null;
create index history_default_tenant_id_idx on redrive.history_default (tenant, id) where tenant is
    not null;

create table redrive.history_queues (
    queue text not null,
    days int not null,
    constraint history_queues_pkey primary key (queue),
    constraint history_queues_days_check check (days >= 1 and days <= 400),
    constraint history_queues_queue_check check ((queue collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$')
);
grant select on redrive.history_queues to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.hot_keys (
    queue text not null,
    ordering_key text not null,
    generation int not null,
    jobs_from bigint not null,
    next_from bigint not null,
    next_xid xid8 not null,
    moved_at timestamptz not null default clock_timestamp(),
    constraint hot_keys_pkey primary key (queue, ordering_key)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);

create table redrive.imports (
    source text not null,
    source_id text not null,
    job bigint not null default nextval('redrive.jobs_id_seq'::regclass),
    at timestamptz not null default clock_timestamp(),
    constraint imports_pkey primary key (source, source_id),
    constraint imports_source_check check (length(source) >= 1 and length(source) <= 255),
    constraint imports_source_id_check check (length(source_id) >= 1 and length(source_id) <= 255)
);
create unique index imports_job_idx on redrive.imports (job);
grant select on redrive.imports to redrive_agent, redrive_operator;

create table redrive.jobs (
    id bigint generated by default as identity not null,
    run_at timestamptz not null default clock_timestamp(),
    deliveries int not null default 0,
    attempt int not null default 0,
    losses int not null default 0,
    streak int not null default 0,
    max_attempts int,
    priority smallint not null default 0,
    lane smallint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    failed_at timestamptz,
    redrives int not null default 0,
    queue text not null default 'default',
    kind text not null,
    fingerprint text,
    tenant text,
    ordering_key text,
    idempotency_key text,
    headers jsonb not null default '{}',
    payload jsonb not null default '{}',
    noted boolean not null default false,
    refunds int,
    batch bigint,
    limits text[],
    constraint jobs_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000,
    autovacuum_vacuum_insert_scale_factor=0, autovacuum_vacuum_insert_threshold=20000,
    autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=20000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off, vacuum_index_cleanup=on, fillfactor=90);
create index jobs_due_idx on redrive.jobs (queue, priority, lane, run_at, id) with
    (deduplicate_items=off) where queue is not null;
create index jobs_failing_idx on redrive.jobs (fingerprint, queue, run_at) where failed_at is not
    null;
create index jobs_ordering_active_idx on redrive.jobs (queue, ordering_key, id) with
    (deduplicate_items=off) where ordering_key is not null and run_at < 'infinity'::timestamptz;
create index jobs_ordering_idx on redrive.jobs (queue, ordering_key, id) with
    (deduplicate_items=off) where ordering_key is not null;
create unique index jobs_idempotency_idx on redrive.jobs (kind, idempotency_key) where
    idempotency_key is not null;
create trigger jobs_admitted after insert on redrive.jobs referencing new table as fresh for each
    statement execute function redrive.admit();
create trigger jobs_parked before insert on redrive.jobs for each row when (new.ordering_key is not
    null and new.run_at <> 'infinity'::timestamptz and current_setting('redrive.looked', true) is
    distinct from 'on' or pg_column_size(new.payload) > 262144 or pg_column_size(new.headers) >
    8192) execute function redrive.park_behind_key();
grant select on redrive.jobs to redrive_agent, redrive_encryptor, redrive_operator;
grant insert (run_at, max_attempts, priority, queue, kind, headers, payload) on redrive.jobs to
    redrive_operator, redrive_producer, redrive_worker;

create table redrive.kind_limits (
    kind text not null,
    templates text[] not null,
    constraint kind_limits_pkey primary key (kind)
);

create table redrive.kind_objectives (
    queue text not null,
    kind text not null,
    objective text not null,
    value float8 not null,
    constraint kind_objectives_pkey primary key (queue, kind, objective),
    constraint kind_objectives_kind_check check (kind = '*' or (kind collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint kind_objectives_objective_check check ( case     when kind = '*' then objective = any
        (array['dlq_unacknowledged_age_seconds', 'failed_ratio'])     else queue <> '*' and
        (objective = any (array['dlq_added_5m', 'dlq_added_1h', 'page_on_first_dead_letter',
        'failed_ratio'])) end),
    constraint kind_objectives_queue_check check (queue = '*' or (queue collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint kind_objectives_value_check check (value >= 0::float8 and value < 'Infinity'::float8)
);
grant select on redrive.kind_objectives to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create table redrive.kind_redrives (
    kind text not null,
    rate float8,
    is_repeatable boolean not null default true,
    constraint kind_redrives_pkey primary key (kind),
    constraint kind_redrives_rate_check check (rate > 0::float8)
);
grant select on redrive.kind_redrives to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create table redrive.lane_marks (
    n smallint not null,
    constraint lane_marks_pkey primary key (n)
);

create table redrive.lanes (
    queue text not null,
    priority smallint not null,
    lane smallint not null,
    constraint lanes_pkey primary key (queue, priority, lane)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table redrive.limit_keys (
    name text not null,
    slots_from bigint not null default 0,
    slots_seen bigint not null default 0,
    constraint limit_keys_pkey primary key (name)
) with (fillfactor=30, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);

create table redrive.limit_lines (
    name text not null,
    queue text not null,
    kind text not null,
    priority smallint not null,
    due timestamptz not null default '-infinity'::timestamptz,
    job bigint not null default 0,
    begun_at timestamptz not null default clock_timestamp()
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);
alter table redrive.limit_lines replica identity full;
create index limit_lines_name_idx on redrive.limit_lines (name);

create table redrive.limit_paces (
    name text not null,
    n bigint not null,
    next_at timestamptz not null,
    placed_at timestamptz not null,
    constraint limit_paces_pkey primary key (name, n)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500,
    autovacuum_vacuum_cost_delay=0);

create table redrive.limit_slots (
    name text not null,
    job bigint not null,
    id bigint generated always as identity not null,
    constraint limit_slots_pkey primary key (job, name)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500,
    autovacuum_vacuum_cost_delay=0);
create index limit_slots_name_idx on redrive.limit_slots (name, id);

create table redrive.limit_waits (
    job bigint not null,
    name text not null,
    queue text not null,
    kind text not null,
    priority smallint not null,
    due timestamptz not null,
    constraint limit_waits_pkey primary key (job)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000,
    autovacuum_vacuum_cost_delay=0);
create index limit_waits_line_idx on redrive.limit_waits (name, queue, kind, priority, due, job);

create table redrive.limits (
    name text not null,
    concurrency int,
    rate float8,
    set_at timestamptz not null default clock_timestamp(),
    constraint limits_pkey primary key (name),
    constraint limits_check check (concurrency is not null or rate is not null),
    constraint limits_concurrency_check check (concurrency >= 0 and concurrency <= 1000000),
    constraint limits_name_check check (length(name) >= 1 and length(name) <= 255),
    constraint limits_rate_check check (rate > 0::float8)
);

create table redrive.marks (
    id bigint generated always as identity not null,
    at timestamptz not null default clock_timestamp(),
    what text not null,
    name text not null,
    queues text[],
    kinds text[],
    constraint marks_pkey primary key (id)
);
create index marks_at_idx on redrive.marks (at);

create table redrive.migrations (
    version int not null,
    name text not null,
    applied_at timestamptz not null default clock_timestamp(),
    functions text not null default '',
    serves int not null,
    constraint migrations_pkey primary key (version)
);
grant select on redrive.migrations to redrive_agent, redrive_encryptor, redrive_operator,
    redrive_producer, redrive_viewer, redrive_worker;

create table redrive.name_limits (
    what text not null,
    at_most int not null,
    constraint name_limits_pkey primary key (what),
    constraint name_limits_at_most_check check (at_most >= 1 and at_most <= 1000000),
    constraint name_limits_what_check check (what = any (array['queues', 'kinds']))
);

create table redrive.names (
    queue text not null,
    kind text not null,
    priority smallint not null,
    login text not null default session_user,
    xact xid8 not null default pg_current_xact_id(),
    at timestamptz not null default clock_timestamp()
);
alter table redrive.names replica identity full;
create index names_idx on redrive.names (queue, kind, priority);

create table redrive.objectives (
    queue text not null,
    objective text not null,
    value float8 not null,
    constraint objectives_pkey primary key (queue, objective),
    constraint objectives_objective_check check (objective = any (array['dlq_added_5m',
        'dlq_added_1h', 'dlq_oldest_age_seconds', 'dead_ratio', 'ready_age_seconds',
        'page_on_first_dead_letter'])),
    constraint objectives_queue_check check (queue = '*' or (queue collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint objectives_value_check check (value >= 0::float8 and value < 'Infinity'::float8)
);
grant select on redrive.objectives to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.open_groups (
    fingerprint text not null,
    queue text not null,
    opened_at timestamptz not null default clock_timestamp(),
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_why text,
    constraint open_groups_pkey primary key (fingerprint)
) with (fillfactor=70);
grant select on redrive.open_groups to redrive_agent, redrive_operator;

create table redrive.owners (
    queue text not null,
    kind text not null default '*',
    owner text not null,
    contact text,
    constraint owners_pkey primary key (queue, kind),
    constraint owners_contact_check check (length(contact) >= 1 and length(contact) <= 255),
    constraint owners_kind_check check (kind = '*' or (kind collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$'),
    constraint owners_owner_check check ((owner collate "C") ~ '^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$'),
    constraint owners_queue_check check (queue = '*' or (queue collate "C") ~
        '^[A-Za-z][A-Za-z0-9_.-]{0,62}$')
);
grant select on redrive.owners to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.progress (
    job bigint not null,
    deliveries int not null,
    at timestamptz not null default clock_timestamp(),
    share real not null,
    detail jsonb not null,
    constraint progress_pkey primary key (job),
    constraint progress_detail_shape check (jsonb_typeof(detail) = 'object') not valid,
    constraint progress_share_check check (share >= 0::float8 and share <= 1::float8)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
grant select on redrive.progress to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.proposals (
    id bigint generated always as identity not null,
    action text not null,
    proposed_by text not null,
    login text not null default session_user,
    why text not null,
    detail jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    state text not null default 'open',
    decided_at timestamptz,
    decided_by text,
    constraint proposals_pkey primary key (id),
    constraint proposals_action_check check ((action = any (array['edit', 'mute', 'retry', 'hold',
        'release', 'give-up'])) and ((action = any (array['edit', 'mute'])) or (detail ->> 'group')
        is not null)),
    constraint proposals_detail_check check (octet_length(detail::text) <= 65536),
    constraint proposals_detail_shape check (jsonb_typeof(detail) = 'object') not valid,
    constraint proposals_proposed_by_check check (length(proposed_by) >= 1 and length(proposed_by)
        <= 255),
    constraint proposals_state_check check (state = any (array['open', 'started', 'rejected'])),
    constraint proposals_why_check check (length(why) >= 1 and length(why) <= 2000)
);
grant select on redrive.proposals to redrive_operator;

create table redrive.purge_lock (

);
alter table redrive.purge_lock replica identity full;

create table redrive.queue_series (
    span smallint not null,
    at timestamptz not null,
    queue text not null,
    minutes int not null,
    backlog bigint not null,
    running bigint not null,
    workers int not null,
    constraint queue_series_pkey primary key (span, at, queue),
    constraint queue_series_span_check check (span = any (array[1, 60]))
);

create table redrive.queues (
    queue text not null,
    lanes smallint not null default 1,
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    constraint queues_pkey primary key (queue),
    constraint queues_lanes_check check (lanes >= 1 and lanes <= 256),
    constraint queues_queue_check check ((queue collate "C") ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$')
) with (fillfactor=50);
grant select on redrive.queues to redrive_agent, redrive_operator, redrive_worker;

create table redrive.redrive_lock (

);
alter table redrive.redrive_lock replica identity full;

create table redrive.reencrypt_lock (

);
alter table redrive.reencrypt_lock replica identity full;

create table redrive.replacements (
    id bigint generated always as identity not null,
    xact xid8 not null default pg_current_xact_id(),
    job bigint not null,
    wanted jsonb not null,
    constraint replacements_pkey primary key (id),
    constraint replacements_applied trigger deferrable initially deferred
);
create index replacements_xact_idx on redrive.replacements (xact);
create constraint trigger replacements_applied after insert on redrive.replacements deferrable
    initially deferred for each row execute function redrive.replace_waiting();

create table redrive.reservoir_samples (
    kind text not null,
    slot smallint not null,
    at timestamptz not null default clock_timestamp(),
    facts jsonb not null,
    constraint reservoir_samples_pkey primary key (kind, slot),
    constraint reservoir_samples_facts_shape check (jsonb_typeof(facts) = 'object') not valid
);
create index reservoir_samples_at_idx on redrive.reservoir_samples (at);
grant select on redrive.reservoir_samples to redrive_agent, redrive_operator;

create table redrive.reservoirs (
    kind text not null,
    n int not null default 0,
    began_at timestamptz not null default clock_timestamp(),
    taken_at timestamptz not null default clock_timestamp(),
    constraint reservoirs_pkey primary key (kind)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);

create table redrive.results (
    job bigint not null,
    deliveries int not null,
    outcome text not null,
    result jsonb,
    keep_until timestamptz not null,
    constraint results_pkey primary key (job),
    constraint results_outcome_check check (outcome = any (array['succeeded', 'cancelled'])),
    constraint results_result_shape check (jsonb_typeof(result) = 'object') not valid
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
create index results_keep_until_idx on redrive.results (keep_until);
grant select on redrive.results to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.retention (
    what text not null,
    keep interval not null,
    constraint retention_pkey primary key (what),
    constraint retention_keep_check check (keep >= case what     when 'audit' then '30
        days'::interval     else '01:00:00'::interval end),
    constraint retention_what_check check (what = any (array['audit', 'campaigns', 'groups', 'keys',
        'names']))
);
grant select on redrive.retention to redrive_operator, redrive_viewer, redrive_worker;

create table redrive.running_keys (
    queue text not null,
    ordering_key text not null,
    job bigint not null,
    generation int not null default 0,
    constraint running_keys_pkey primary key (queue, ordering_key, generation)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000,
    autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
create index running_keys_job_idx on redrive.running_keys (job);

create table redrive.runs (
    id bigint not null,
    action text not null,
    actor text not null,
    db_user text not null default session_user,
    why text not null,
    n int not null default 0,
    active_at timestamptz not null default clock_timestamp(),
    constraint runs_pkey primary key (id)
) with (fillfactor=50);

create table redrive.samples (
    minute timestamptz not null,
    queue text not null,
    dead bigint not null,
    constraint samples_pkey primary key (minute, queue)
);

create table redrive.schedule_declarations (
    id bigint generated always as identity not null,
    schedule text not null,
    kind text not null,
    queue text not null,
    cron text not null,
    tz text not null,
    catch_up text not null,
    payload jsonb not null,
    digest bytea not null,
    declared_at timestamptz not null default clock_timestamp(),
    constraint schedule_declarations_pkey primary key (id),
    constraint schedule_declarations_catch_up check (catch_up = any (array['skip', 'one', 'all'])),
    constraint schedule_declarations_once unique (schedule, digest)
);

create table redrive.schedule_declarers (
    worker int not null,
    declaration bigint not null,
    version text,
    constraint schedule_declarers_pkey primary key (worker, declaration),
    constraint schedule_declarers_declaration_fkey foreign key (declaration) references
        redrive.schedule_declarations(id) on delete cascade,
    constraint schedule_declarers_worker_fkey foreign key (worker) references redrive.workers(id) on
        delete cascade
);
create index schedule_declarers_declaration_idx on redrive.schedule_declarers (declaration);

create table redrive.schedules (
    name text not null,
    declaration bigint not null,
    next_at timestamptz,
    since timestamptz not null default clock_timestamp(),
    last_at timestamptz,
    last_job bigint,
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    planned_at timestamptz,
    constraint schedules_pkey primary key (name),
    constraint schedules_declaration_fkey foreign key (declaration) references
        redrive.schedule_declarations(id)
) with (fillfactor=50);
create index schedules_declaration_idx on redrive.schedules (declaration);

create table redrive.series (
    span smallint not null,
    at timestamptz not null,
    queue text not null,
    kind text not null,
    enqueued int not null default 0,
    completed int not null default 0,
    failed int not null default 0,
    retried int not null default 0,
    died int not null default 0,
    redriven int not null default 0,
    duration int[],
    wait int[],
    constraint series_pkey primary key (span, at, queue, kind),
    constraint series_span_check check (span = any (array[1, 60]))
);

create table redrive.series_deltas (
    queue text not null,
    kind text not null,
    duration int[] not null,
    wait int[] not null
);
alter table redrive.series_deltas replica identity full;

create table redrive.side_effects (
    job bigint not null,
    deliveries int not null,
    at timestamptz not null default clock_timestamp(),
    what text not null,
    detail jsonb not null default '{}'
);
alter table redrive.side_effects replica identity full;
create index side_effects_job_idx on redrive.side_effects (job);
grant select on redrive.side_effects to redrive_agent, redrive_encryptor, redrive_operator;

create table redrive.snapshots (
    one boolean not null default true,
    taken_at timestamptz not null default '-infinity'::timestamptz,
    body jsonb not null default '{}',
    constraint snapshots_pkey primary key (one),
    constraint snapshots_body_shape check (jsonb_typeof(body) = 'object') not valid,
    constraint snapshots_one_check check (one)
) with (fillfactor=10);

create table redrive.start_lock (

);
alter table redrive.start_lock replica identity full;

create table redrive.tallies (
    queue text not null,
    kind text not null,
    event text not null,
    reason text not null,
    n bigint not null,
    at timestamptz not null default now(),
    counted bigint not null default 0,
    constraint tallies_pkey primary key (queue, kind, event, reason)
) with (fillfactor=50);

create table redrive.used_links (
    link text not null,
    used_at timestamptz not null default clock_timestamp(),
    constraint used_links_pkey primary key (link),
    constraint used_links_link_check check (length(link) >= 1 and length(link) <= 64)
);
grant select on redrive.used_links to redrive_operator;

create table redrive.workers (
    id int generated always as identity not null,
    name text not null,
    version text not null default '',
    started_at timestamptz not null default now(),
    seen_at timestamptz not null default now(),
    lost_at timestamptz,
    inflight int not null default 0,
    ttl interval,
    is_closed boolean not null default false,
    heard interval not null default '00:00:00'::interval,
    kinds text[],
    queues text[],
    progress jsonb,
    alone bigint,
    depends_on jsonb,
    holds text[],
    claims_from bigint not null default 0,
    constraint workers_pkey primary key (id),
    constraint workers_depends_on_shape check (jsonb_typeof(depends_on) = 'object') not valid,
    constraint workers_progress_shape check (jsonb_typeof(progress) = 'object') not valid
) with (fillfactor=30, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=50);
grant select on redrive.workers to redrive_agent, redrive_operator, redrive_viewer, redrive_worker;

create view redrive.grouped (
    fingerprint text,
    kind text,
    category text,
    error_class text,
    message text,
    sample bigint,
    total bigint,
    open bigint,
    first_seen timestamptz,
    last_seen timestamptz,
    versions jsonb,
    muted_until timestamptz,
    muted_by text,
    muted_why text,
    fixed_in text[],
    resolved_at timestamptz,
    resolved_by text,
    resolved_why text,
    regressed_in text,
    regressed_at timestamptz,
    since jsonb,
    failed bigint
);
grant select on redrive.grouped to redrive_agent, redrive_operator, redrive_worker;

create view redrive.shown_breakers (
    name text,
    state text,
    failures int,
    successes int,
    opened int,
    opened_at timestamptz,
    open_until timestamptz,
    changed_at timestamptz,
    forced_by text,
    forced_why text
);
grant select on redrive.shown_breakers to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create view redrive.shown_campaigns (
    id bigint,
    created_at timestamptz,
    actor text,
    why text,
    filter jsonb,
    rate float8,
    matched int,
    redriven int,
    blocked jsonb,
    state text,
    active_at timestamptz,
    db_user text,
    planned_by text,
    planned_login text,
    plan jsonb,
    max_redrives int,
    canaries int,
    abort_share float8,
    not_before timestamptz,
    conditions jsonb,
    started_at timestamptz,
    ended_at timestamptz,
    said text,
    step int,
    place int,
    succeeded int,
    dead_again int,
    cancelled int,
    proposed_by text
);
grant select on redrive.shown_campaigns to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create view redrive.shown_queues (
    queue text,
    lanes smallint,
    paused_at timestamptz,
    paused_by text,
    paused_why text
);
grant select on redrive.shown_queues to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create view redrive.totals (
    queue text,
    kind text,
    event text,
    reason text,
    n bigint
);
grant select on redrive.totals to redrive_agent, redrive_operator, redrive_viewer, redrive_worker;

create function redrive.acknowledge_v1(names text[], is_acknowledged boolean, actor text, why text)
    returns setof text
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.acknowledge_v1 to redrive_operator;

create function redrive.acknowledged_v1(names text[], person text, reason text)
    returns setof text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.add_limit_v1(ids bigint[], name text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.added_per_minute_v1()
    returns table(queue text, added float8)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.added_per_minute_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.admit()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.admit_envelopes_v1(salts text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.admit_names_v1(queues text[], kinds text[], priorities smallint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.advance_contact_v1()
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.advance_floors_v1()
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set jit = off;
grant execute on function redrive.advance_floors_v1 to redrive_worker;

create function redrive.advance_keys_v1(of_queue text, ids bigint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.advance_lines_v1(name text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.advance_slots_v1(names text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.agent_name_v1(agent text, person text)
    returns text
    language sql immutable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.all_lanes_v1()
    returns table(queue text, priority smallint, lane smallint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.assign_v1(ids bigint[], owner text, actor text, why text)
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.assign_v1 to redrive_operator;

create function redrive.audit_hash_v1(before bytea, line redrive.audit)
    returns bytea
    language sql immutable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.beat_v1(ids int[], inflights int[], progress jsonb[])
    returns setof int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.beat_v1 to redrive_worker;

create function redrive.beat_v2(ids int[], inflights int[], progress jsonb[], out alive int[], out
    others int, out place int, out late float8)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.beat_v2 to redrive_worker;

create function redrive.begin_epoch_v1()
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.begin_run_v1(action text, actor text, why text, n int, detail jsonb)
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.begin_run_v1 to redrive_encryptor, redrive_operator;

create function redrive.breakers_v1(names text[], failures int[], successes int[], thresholds int[],
    windows float8[], cooldowns float8[])
    returns table(name text, state text, open_for float8, failing boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 50ms
    set jit = off;
grant execute on function redrive.breakers_v1 to redrive_worker;

create function redrive.busy_v1(ids bigint[])
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.busy_v1 to redrive_worker;

create function redrive.call_back_v1(job bigint, batch bigint, counts jsonb)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.call_tool_v1(agent text, person text, tool text, arguments jsonb, most_calls
    int, most_proposals int)
    returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.call_tool_v1 to redrive_agent;

create function redrive.cancel_callbacks_v1(callbacks bigint[])
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.cancel_campaign_v1(campaign bigint, actor text, why text)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.cancel_campaign_v1 to redrive_operator;

create function redrive.cancel_v1(ids bigint[], actor text, why text)
    returns table(id bigint, outcome text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.cancel_v1 to redrive_operator;

create function redrive.cancelled_v1(workers int[])
    returns setof bigint
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.cancelled_v1 to redrive_worker;

create function redrive.chain_audit()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.check_actor_v1(actor text)
    returns void
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.claim_v1(me int, queues text[], priorities smallint[], lanes smallint[],
    floors timestamptz[], floor_ids bigint[], seen bigint[], from_start boolean, want int, patience
    int default 0)
    returns table(lane_no int, jobs int, upto timestamptz, upto_id bigint, as_of bigint, claim
        bigint, id bigint, deliveries int, attempt int, kind text, payload text, rest text, run_at
        timestamptz, created float8)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.claim_v1 to redrive_worker;

create function redrive.claimed_lanes_v1()
    returns table(queue text, priority smallint, lane smallint)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.claimed_v1(me int, after bigint)
    returns table(claim bigint, id bigint, deliveries int, attempt int, kind text, payload jsonb,
        rest text, run_at timestamptz, created float8)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off
    set work_mem = 32MB;
grant execute on function redrive.claimed_v1 to redrive_worker;

create function redrive.claims_from_v1(worker int)
    returns bigint
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.claims_of_v1(workers int[], ids bigint[])
    returns bigint[]
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.close_batch_v1(batch bigint)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.close_batch_v1 to redrive_operator, redrive_producer,
    redrive_worker;

create function redrive.close_campaign_v1(campaign bigint, redriven int, blocked jsonb)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.complete_in_transaction_v1(worker int, id bigint, deliveries int)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.complete_in_transaction_v1 to redrive_worker;

create function redrive.complete_v1(workers int[], claims bigint[], ids bigint[], deliveries int[],
    ended bigint[])
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.complete_v1 to redrive_worker;

create function redrive.complete_with_results_v1(workers int[], claims bigint[], ids bigint[],
    deliveries int[], ended bigint[], returned bigint[], results jsonb[], keeps float8[])
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.complete_with_results_v1 to redrive_worker;

create function redrive.contact_now_v1()
    returns interval
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.content_digest_v1(payload jsonb, headers jsonb)
    returns bytea
    language sql immutable;

create function redrive.count_buried()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.count_moved()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.count_purged()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.count_run_v1(run bigint, action text, n int, detail jsonb)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.count_times_v1(queues text[], kinds text[], durations text[], waits text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.count_times_v1 to redrive_worker;

create function redrive.decide_v1(proposal bigint, is_started boolean, actor text, why text, out
    action text, out detail jsonb)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.decide_v1 to redrive_operator;

create function redrive.declare_limits_v1(kinds text[], templates jsonb)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.declare_limits_v1 to redrive_worker;

create function redrive.declare_redrives_v1(kinds text[], terms jsonb)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.declare_redrives_v1 to redrive_worker;

create function redrive.declare_schedules_v1(worker int, version text, declared jsonb)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.declare_schedules_v1 to redrive_worker;

create function redrive.declared_schedules_v1()
    returns table(id bigint, schedule text, kind text, queue text, cron text, tz text, catch_up
        text)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.delivery_mark_v1(id bigint, deliveries int)
    returns bigint
    language sql immutable;
grant execute on function redrive.delivery_mark_v1 to redrive_worker;

create function redrive.depths_v1()
    returns table(queue text, ready bigint, scheduled bigint, retrying bigint, running bigint, dead
        bigint, paused boolean, oldest_ready_seconds float8)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.depths_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.dismiss_v1(ids bigint[], actor text, why text)
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.dismiss_v1 to redrive_operator;

create function redrive.done_chore_v1(chore text, every interval)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.done_chore_v1 to redrive_operator;

create function redrive.drop_checkpoints_v1(ids bigint[])
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.drop_from_history_v1(kept bigint[], ended bigint[], at timestamptz)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.due_schedules_v1()
    returns table(name text, declaration bigint, cron text, tz text, catch_up text, expected
        timestamptz, next_at timestamptz, after timestamptz, as_of timestamptz)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.due_schedules_v1 to redrive_worker;

create function redrive.due_v1(only_queues text[], kinds text[])
    returns table(queue text, since timestamptz)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.due_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.edit_v1(ids bigint[], digests bytea[], payloads jsonb[], salts text[], patch
    jsonb, paths text[], actor text, why text)
    returns table(id bigint, refused text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.edit_v1 to redrive_operator;

create function redrive.end_cancellations_v1(batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.end_cancellations_v1 to redrive_worker;

create function redrive.end_cancelled_v1(workers int[], claims bigint[], ids bigint[], deliveries
    int[], outcomes text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.end_claims_v1(workers int[])
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.end_left_open_v1(ids bigint[], deliveries int[])
    returns setof bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.end_left_open_v1 to redrive_worker;

create function redrive.end_run_v1(run bigint)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.end_run_v1 to redrive_encryptor, redrive_operator;

create function redrive.end_session_v1(session text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.end_session_v1 to redrive_operator, redrive_viewer;

create function redrive.end_waiting_v1(ids bigint[], waits boolean)
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.enqueue(kind text, payload jsonb default '{}', queue text default 'default',
    run_at timestamptz default null::timestamptz, priority int default 0, max_attempts int default
    null::int, idempotency_key text default null::text, ordering_key text default null::text, tenant
    text default null::text, expires_in interval default null::interval, headers jsonb default '{}',
    delay interval default null::interval, unique_for interval default null::interval, unique_by
    text[] default null::text[], on_conflict text default null::text, batch bigint default
    null::bigint)
    returns bigint
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.enqueue to redrive_operator, redrive_producer, redrive_worker;

create function redrive.enqueue_each_v1(jobs jsonb, places int[])
    returns table(n int, id bigint, created boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.enqueue_many_v1(jobs jsonb)
    returns table(n int, id bigint, created boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.enqueue_many_v1 to redrive_operator, redrive_producer,
    redrive_worker;

create function redrive.enqueue_scheduled_v1(declaration bigint, slot timestamptz, key text)
    returns bigint
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.enqueue_v1(kind text, payload jsonb, queue text, run_at timestamptz,
    priority int, max_attempts int, idempotency_key text, ordering_key text, tenant text, expires_in
    interval, headers jsonb, delay interval, unique_for interval, unique_by text[], on_conflict
    text, batch bigint, out id bigint, out created boolean, out outcome text)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.enqueue_v1 to redrive_operator, redrive_producer, redrive_worker;

create function redrive.expect_chore_v1(chore text, every interval)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.failing_causes_v1()
    returns table(queue text, fingerprints text[])
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set jit = off;

create function redrive.failing_figures_v1(before jsonb, queues text[], pairs jsonb)
    returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.failing_v1(most int)
    returns table(queue text, kind text, fingerprint text, category text, failing bigint, since
        timestamptz, next_retry timestamptz, sample bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set work_mem = 32MB
    set plan_cache_mode = force_custom_plan
    set jit = off;
grant execute on function redrive.failing_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.finish_chore_v1(chore text, every interval)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.fire_schedule_v1(name text, declaration bigint, expected timestamptz, slots
    timestamptz[], next timestamptz)
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.fire_schedule_v1 to redrive_worker;

create function redrive.first_time_v1(key text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.first_time_v1 to redrive_worker;

create function redrive.fixed_v1()
    returns table(fingerprint text, fixed_in text[], versions text[])
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.fixed_v1 to redrive_worker;

create function redrive.fold_batches_v1(batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.fold_batches_v1 to redrive_worker;

create function redrive.fold_groups_v1(out moved int, out more boolean)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.fold_groups_v1 to redrive_viewer, redrive_worker;

create function redrive.fold_hours_v1(since timestamptz, until timestamptz)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.fold_series_v1()
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.fold_series_v1 to redrive_viewer, redrive_worker;

create function redrive.fold_v1(out moved int, out more boolean)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.fold_v1 to redrive_viewer, redrive_worker;

create function redrive.force_breaker_v1(name text, state text, actor text, why text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.force_breaker_v1 to redrive_operator;

create function redrive.forget_audit_v1(older_than interval, batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_batches_v1(older_than interval, batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_campaigns_v1(older_than interval, batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_completions_v1(older_than interval, batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_effects_v1(older_than interval, batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_envelopes_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_failures_v1(batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_groups_v1(older_than interval, batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_imports_v1(older_than interval, batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_lanes_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_names_v1(older_than interval, batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.forget_recovered_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.forget_results_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_samples_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_schedules_v1(older_than interval, batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.forget_series_v1(batch int)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.forget_side_effects_v1(batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.forget_v1(batch int, out gone int, out more boolean)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.forget_v1 to redrive_operator, redrive_worker;

create function redrive.forgive_v1(ids bigint[], deliveries int[])
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.forgive_v1 to redrive_worker;

create function redrive.free_slots_v1(ids bigint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.give_up_v1(ids bigint[], actor text, why text)
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.give_up_v1 to redrive_operator;

create function redrive.given_jobs_v1(jobs jsonb)
    returns table(n bigint, kind text, payload jsonb, queue text, run_at timestamptz, priority int,
        max_attempts int, idempotency_key text, ordering_key text, tenant text, expires_in float8,
        headers jsonb, delay float8, unique_for float8, unique_by text[], on_conflict text, batch
        bigint)
    language sql stable;

create function redrive.groups_named_v1(beginning text)
    returns text[]
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.groups_named_v1 to redrive_agent, redrive_operator;

create function redrive.handles_v1(kinds text[], kind text)
    returns boolean
    language sql stable;
grant execute on function redrive.handles_v1 to redrive_agent, redrive_operator;

create function redrive.has_deltas_v1()
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = on
    set jit = off;

create function redrive.heal_v1(max_redrives int, abort_share float8)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.heal_v1 to redrive_worker;

create function redrive.healing_v1(kinds text[])
    returns table(fingerprint text, kind text, category text, open bigint, first_seen timestamptz,
        version text, canaries int, max_rate float8, cause text)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.healing_v1 to redrive_operator;

create function redrive.health_v1(before jsonb)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.health_v1 to redrive_operator, redrive_viewer;

create function redrive.held_until_v1()
    returns timestamptz
    language sql immutable;
grant execute on function redrive.held_until_v1 to redrive_agent, redrive_operator;

create function redrive.held_v1(workers int[])
    returns table(worker int, claim bigint, id bigint, deliveries int)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.hide_messages_v1()
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.hide_messages_v1 to redrive_encryptor;

create function redrive.hold_failing_v1(batch int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.hold_failing_v1 to redrive_worker;

create function redrive.hold_group_v1(fingerprint text, is_held boolean, actor text, why text)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.hold_group_v1 to redrive_operator;

create function redrive.hold_run_v1(name text)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.hold_run_v1 to redrive_encryptor, redrive_operator;

create function redrive.hold_waiting_v1(ids bigint[], waits boolean)
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.holds_key_v1(kind text)
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.holds_v1(payload jsonb, headers jsonb, conditions text[])
    returns boolean
    language sql immutable;
grant execute on function redrive.holds_v1 to redrive_operator;

create function redrive.import_failures_v1(ids bigint[], records jsonb[])
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.import_failures_v1 to redrive_operator;

create function redrive.import_v1(source text, letters jsonb, actor text, why text)
    returns table(n int, id bigint)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.import_v1 to redrive_operator;

create function redrive.in_campaign_v1(ids bigint[])
    returns table(id bigint, campaign bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.in_campaign_v1 to redrive_agent, redrive_operator;

create function redrive.interrupt_runs_v1(batch int)
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.is_alive_v1(seen_at timestamptz, lost_at timestamptz, ttl interval)
    returns boolean
    language sql stable;
grant execute on function redrive.is_alive_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.is_failing_v1(fingerprint text)
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.is_key_held_v1(queue text, ordering_key text, job bigint)
    returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.job_place_v1(queue text, priority smallint, lane smallint, run_at
    timestamptz, id bigint)
    returns text
    language sql stable;

create function redrive.job_state_v1(run_at timestamptz, failed_at timestamptz, worker int)
    returns text
    language sql stable;

create function redrive.join_batch_v1(batches bigint[], redriven boolean[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.judge_loss_v1(lost_worker int, held bigint[])
    returns table(id bigint, outcome text, reason text, refund boolean, losses int, failure jsonb)
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.judge_v1(fingerprint text, resolved_at timestamptz, since jsonb,
    regressed_in text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.judge_v1 to redrive_worker;

create function redrive.keep_checkpoints_v1(workers int[], claims bigint[], ids bigint[], deliveries
    int[], data jsonb[])
    returns table(id bigint, delivery int, is_kept boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.keep_checkpoints_v1 to redrive_worker;

create function redrive.keep_history_v1(state text, workers int[], ids bigint[], deliveries int[],
    at timestamptz)
    returns bigint[]
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.keep_progress_v1(workers int[], claims bigint[], ids bigint[], deliveries
    int[], shares float8[], details jsonb[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.keep_progress_v1 to redrive_worker;

create function redrive.keep_samples_v1(kinds text[], facts jsonb[])
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.keep_samples_v1 to redrive_worker;

create function redrive.kinds_behind_v1(breaker text)
    returns text[]
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.lane_mark_v2(queue text, priority smallint, lane smallint)
    returns smallint
    language sql immutable;

create function redrive.lane_of_v1(queue text, tenant text)
    returns smallint
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.lanes_v1(only_queues text[])
    returns table(queue text, priority smallint, lane smallint, due_in float8)
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.lanes_v1 to redrive_worker;

create function redrive.lanes_v2(only_queues text[], after_queue text, after_priority int,
    after_lane int, at_most int)
    returns table(queue text, priority smallint, lane smallint, due_in float8, is_paused boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.lanes_v2 to redrive_worker;

create function redrive.leave_out_v1(plan bigint, places int[], causes text[])
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.leave_out_v1 to redrive_operator;

create function redrive.limit_line_v1(ids bigint[])
    returns table(job bigint, name text, concurrency int, used int, rate float8, place int)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.limit_line_v1 to redrive_agent, redrive_operator;

create function redrive.limit_names_v1(what text, at_most int, actor text, why text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.limit_names_v1 to redrive_operator;

create function redrive.limit_of_v1(name text)
    returns table(setting text, concurrency int, rate float8, burst int)
    language sql stable;

create function redrive.limit_redrives_v1(ids bigint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.limit_room_v1(name text, out slots int, out room int, out rate float8, out
    burst int)
    returns record
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.limit_rooms_v1(names text[])
    returns table(number int, name text, slots int, room int, rate float8, burst int, used int)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.limited_v1()
    returns table(queue text, waiting bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.limited_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.limits_of_v1(templates text[], kind text, queue text, tenant text, payload
    jsonb)
    returns table(names text[])
    language sql stable;

create function redrive.limits_v1()
    returns table(name text, concurrency int, rate float8, set_at timestamptz, used bigint, waiting
        bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.limits_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.live_campaigns_v1()
    returns setof bigint
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.live_campaigns_v1 to redrive_worker;

create function redrive.live_jobs_v1(ids bigint[])
    returns table(id bigint, place text, state text, worker int)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.live_jobs_v1 to redrive_agent, redrive_operator;

create function redrive.lock_limits_v1(names text[])
    returns text[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set lock_timeout = 50ms
    set jit = off;

create function redrive.lock_starts_v1()
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.lock_starts_v1 to redrive_operator;

create function redrive.look_at_campaign_v1(campaign bigint)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.look_at_campaign_v1 to redrive_worker;

create function redrive.lost_workers_v1()
    returns bigint
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.lost_workers_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.make_lane_v1(of_queue text, of_priority smallint, of_lane smallint)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 10ms
    set jit = off;

create function redrive.mark_lost_v1(ttl interval)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.mark_lost_v1 to redrive_worker;

create function redrive.may_change_batch_v1(opened_by text)
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.mend_lines_v1()
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.mute_v1(fingerprint text, until timestamptz, actor text, why text)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.mute_v1 to redrive_operator;

create function redrive.names_in_v1(names jsonb)
    returns text[]
    language sql immutable;

create function redrive.names_of_limits_v1()
    returns setof text
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.names_of_limits_v1 to redrive_operator;

create function redrive.names_used_v1()
    returns table(what text, used int, at_most int)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.names_used_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.new_lanes_v1(only_queues text[])
    returns table(queue text, priority smallint, lane smallint, due_in float8)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.new_lanes_v1 to redrive_worker;

create function redrive.next_at_v1(next_at timestamptz, rate float8, burst int, n int, at
    timestamptz)
    returns timestamptz
    language sql immutable;

create function redrive.next_lanes_v1(only_queues text[], after_queue text, after_priority int,
    after_lane int, at_most int)
    returns table(queue text, priority smallint, lane smallint)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.note_v1(job bigint, actor text, text text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.note_v1 to redrive_operator;

create function redrive.oldest_dead_v1()
    returns table(queue text, age_seconds float8)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.oldest_dead_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.oldest_retrying_v1()
    returns table(queue text, age_seconds float8)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.oldest_retrying_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.oldest_transactions_v1(how_many int)
    returns table(pid int, prepared text, login text, application text, state text, seconds float8)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.oldest_transactions_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.open_batch_v1(on_success jsonb, on_end jsonb, close_within interval default
    '1 day'::interval)
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.open_batch_v1 to redrive_operator, redrive_producer,
    redrive_worker;

create function redrive.open_campaign_v1(actor text, why text, filter jsonb, rate float8, matched
    int)
    returns bigint
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.order_keys_v1(campaign bigint)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_custom_plan
    set jit = off;

create function redrive.others_v1(ids int[])
    returns int
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.others_v1 to redrive_worker;

create function redrive.outcome_v1(job bigint, was_live boolean, out outcome text, out result jsonb,
    out delivery int)
    returns record
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.outcome_v1 to redrive_operator, redrive_producer, redrive_worker;

create function redrive.owned_v1(owner text)
    returns text[]
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.owned_v1 to redrive_agent, redrive_operator;

create function redrive.owner_of_v1(queue text, kind text)
    returns text
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.owner_of_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.pace_v1(name text)
    returns table(n bigint, next_at timestamptz, placed_at timestamptz)
    language sql stable;

create function redrive.park_behind_key()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.park_limited_v1(ids bigint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set jit = off;

create function redrive.park_v1(ids bigint[], names text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.pause_campaign_v1(campaign bigint, actor text, why text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.pause_campaign_v1 to redrive_operator;

create function redrive.pause_schedule_v1(name text, actor text, why text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.pause_schedule_v1 to redrive_operator;

create function redrive.pause_v1(queue text, actor text, why text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.pause_v1 to redrive_operator;

create function redrive.payload_fault(payload jsonb)
    returns text
    language plpgsql immutable;
grant execute on function redrive.payload_fault to redrive_agent, redrive_operator;

create function redrive.pending_v1(only_queues text[], kinds text[], horizon interval)
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.pending_v1 to redrive_worker;

create function redrive.person_v1(name text)
    returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.plan_campaign_v1(filter jsonb, max_redrives int, actor text)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_custom_plan
    set work_mem = 64MB
    set jit = off;
grant execute on function redrive.plan_campaign_v1 to redrive_operator;

create function redrive.plan_retry_v1(fingerprint text, actor text)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.plan_retry_v1 to redrive_operator;

create function redrive.propose_campaign_v1(filter jsonb, max_redrives int, agent text, person text,
    why text)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.propose_campaign_v1 to redrive_agent;

create function redrive.propose_v1(action text, agent text, person text, why text, detail jsonb)
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.propose_v1 to redrive_agent;

create function redrive.purge_v1(run bigint, ids bigint[], generations int[], states text[])
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.purge_v1 to redrive_operator;

create function redrive.put_limit_v1(name text, concurrency int, rate float8)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.queue_of_v1(job bigint)
    returns text
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.queue_of_v1 to redrive_agent, redrive_operator;

create function redrive.read_marks_v1(since timestamptz, until timestamptz, of_queue text, of_kind
    text, most int)
    returns table(at timestamptz, what text, action text, name text, actor text, n int, line bigint,
        queues text[], kinds text[])
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
    set jit = off;
grant execute on function redrive.read_marks_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.read_of_keys_v1()
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.read_queue_series_v1(span int, since timestamptz, until timestamptz, step
    interval, of_queue text)
    returns table(at timestamptz, queue text, minutes bigint, backlog bigint, running bigint,
        workers int)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_indexscan = off
    set jit = off;
grant execute on function redrive.read_queue_series_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.read_series_v1(span int, since timestamptz, until timestamptz, step
    interval, of_queue text, of_kind text, by_queue boolean, by_kind boolean)
    returns table(at timestamptz, queue text, kind text, enqueued bigint, completed bigint, failed
        bigint, retried bigint, died bigint, redriven bigint, duration bigint[], wait bigint[])
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_indexscan = off
    set work_mem = 32MB
    set jit = off;
grant execute on function redrive.read_series_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.reads_texts_v1()
    returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.reads_texts_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.recent_losses_v1(losses int, failed_at timestamptz)
    returns int
    language sql stable;

create function redrive.record_minute_v1(this bigint)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.redrive_obstacle_v2(id bigint, redrives int, kind text, idempotency_key
    text, fingerprint text, reason text, category text, version text, deliveries int, quarantined
    boolean, max_redrives int, filter jsonb)
    returns table(cause text)
    language sql stable;
grant execute on function redrive.redrive_obstacle_v2 to redrive_agent, redrive_operator;

create function redrive.redrive_rates_v1(kinds text[])
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.redrive_rates_v1 to redrive_agent, redrive_operator,
    redrive_viewer, redrive_worker;

create function redrive.redrive_v1(ids bigint[], campaign bigint, rate float8, first_turn
    timestamptz, max_redrives int, with_quarantined boolean)
    returns table(id bigint, blocked text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.reencrypt_v1(run bigint, place text, ids bigint[], ns int[], olds jsonb[],
    news jsonb[], salts text[])
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.reencrypt_v1 to redrive_encryptor;

create function redrive.refuse_unseen_v1(kinds text[], keys text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.register_v1(worker_name text, worker_version text, ttl interval, kinds
    text[], queues text[], depends_on jsonb, holds text[])
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.register_v1 to redrive_worker;

create function redrive.reopen_v1(ids bigint[], actor text, why text)
    returns setof bigint
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.reopen_v1 to redrive_operator;

create function redrive.repeats_v1(id bigint, redrives int, fingerprint text, category text)
    returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;

create function redrive.replace_at_commit_v1(job bigint, wanted jsonb)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.replace_waiting()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.rescue_v1(ttl interval, out lost int, out rescued int, out buried int)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.rescue_v1 to redrive_worker;

create function redrive.resolve_limits_v1(ids bigint[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.resolve_v1(fingerprint text, fixed_in text[], seen text[], actor text, why
    text)
    returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.resolve_v1 to redrive_operator;

create function redrive.resume_campaign_v1(campaign bigint, actor text, why text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.resume_campaign_v1 to redrive_operator;

create function redrive.resume_schedule_v1(name text, actor text, why text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.resume_schedule_v1 to redrive_operator;

create function redrive.resume_v1(queue text, actor text, why text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.resume_v1 to redrive_operator;

create function redrive.retire_v1(me int, known bigint[], out released int, out is_over boolean)
    returns record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off;
grant execute on function redrive.retire_v1 to redrive_worker;

create function redrive.retried_v1(campaign bigint, since timestamptz)
    returns table(n int, outcome text)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set jit = off;

create function redrive.retry_fixed_v1(fingerprint text, why text, canaries int, abort_share float8)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.retry_fixed_v1 to redrive_worker;

create function redrive.retry_now_v1(ids bigint[], campaign bigint, rate float8, first_turn
    timestamptz)
    returns table(id bigint, blocked text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.reveal_v1(job bigint, actor text, why text)
    returns table(id bigint, kind text, queue text, tenant text, idempotency_key text, ordering_key
        text, headers jsonb, payload jsonb)
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.reveal_v1 to redrive_operator;

create function redrive.run_alone_v1(me int, job bigint)
    returns float8
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.run_alone_v1 to redrive_worker;

create function redrive.run_now_v1(ids bigint[], actor text, why text)
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.run_now_v1 to redrive_operator;

create function redrive.run_schedule_v1(name text, actor text, why text)
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.run_schedule_v1 to redrive_operator;

create function redrive.sample_v1()
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.sample_v1 to redrive_viewer, redrive_worker;

create function redrive.say_approvals_v1(kinds text[], twice text[])
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.say_approvals_v1 to redrive_worker;

create function redrive.say_heals_v1(version text, policies jsonb)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.say_heals_v1 to redrive_worker;

create function redrive.schedules_v1()
    returns table(name text, kind text, queue text, cron text, tz text, catch_up text, state text,
        next_at timestamptz, last_at timestamptz, last_job bigint, paused_at timestamptz, paused_by
        text, paused_why text, versions text[])
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.schedules_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.series_hour_v1(minute bigint)
    returns timestamptz
    language sql immutable;

create function redrive.sessions_v1(how_many int)
    returns table(login text, application text, connections bigint, idle bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.sessions_v1 to redrive_operator, redrive_viewer;

create function redrive.set_full_scan_v1(queue text, priority smallint, lane smallint, kinds text[],
    next_at timestamptz)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.set_history_v1(queue text, days int, actor text, why text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_history_v1 to redrive_operator;

create function redrive.set_lanes_v1(queue text, lanes int, actor text, why text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_lanes_v1 to redrive_operator;

create function redrive.set_limit_v1(name text, concurrency int, rate float8, actor text, why text)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_limit_v1 to redrive_operator;

create function redrive.set_objective_v1(queue text, objective text, value float8, actor text, why
    text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_objective_v1 to redrive_operator;

create function redrive.set_objective_v2(queue text, kind text, objective text, value float8, actor
    text, why text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_objective_v2 to redrive_operator;

create function redrive.set_owner_v1(queue text, kind text, owner text, contact text, actor text,
    why text)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_owner_v1 to redrive_operator;

create function redrive.set_pace_v1(name text, next_at timestamptz, placed_at timestamptz)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.set_retention_v1(what text, keep interval, actor text, why text)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.set_retention_v1 to redrive_operator;

create function redrive.settle_lost_v1(workers int[], claims bigint[], ids bigint[], deliveries
    int[], outcomes text[], refunds boolean[], losses int[], failures jsonb[], reasons text[])
    returns table(id bigint, outcome text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.settle_v1(workers int[], claims bigint[], ids bigint[], deliveries int[],
    outcomes text[], run_ats timestamptz[], delays float8[], refunds boolean[], losses int[],
    failures jsonb[], reasons text[], ended bigint[])
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.settle_v1 to redrive_worker;

create function redrive.shown_name_v1(name text)
    returns text
    language sql immutable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.shown_v1(before jsonb)
    returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
    set jit = off;

create function redrive.side_effects_v1(workers int[], ids bigint[], deliveries int[], whats text[],
    details jsonb[])
    returns setof bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.side_effects_v1 to redrive_worker;

create function redrive.sign_in_method_v1(actor text)
    returns text
    language sql immutable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.standing_v1(patience interval)
    returns table(queue text, seconds float8, workers int)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.standing_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.start_campaign_v1(plan bigint, actor text, why text, rate float8, canaries
    int, abort_share float8, not_before timestamptz, conditions jsonb)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.start_campaign_v1 to redrive_operator;

create function redrive.stats_v1(max_age interval)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = on
    set jit = off;
grant execute on function redrive.stats_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.step_campaign_v1(campaign bigint, step int, state text, feed int, first_turn
    float8, said text, late_before float8 default null::float8, held_since float8 default
    null::float8)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.step_campaign_v1 to redrive_worker;

create function redrive.supersede_heals_v1(kind text, version text, since timestamptz)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.take_back_v1(campaign bigint, ids bigint[])
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.take_chore_v1(chore text, every interval)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.take_chore_v1 to redrive_worker;

create function redrive.take_chores_v1(names text[], everys interval[])
    returns setof text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set lock_timeout = 100ms
    set jit = off;
grant execute on function redrive.take_chores_v1 to redrive_worker;

create function redrive.take_probe_v1(name text, worker int, lease interval)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.take_probe_v1 to redrive_worker;

create function redrive.take_slots_v1(ids bigint[])
    returns bigint[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.tell_v1(slots int)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.tend_history_v1()
    returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.tend_history_v1 to redrive_worker;

create function redrive.tend_limits_v1(most int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.tend_limits_v1 to redrive_worker;

create function redrive.tokens_v1(next_at timestamptz, rate float8, burst int, at timestamptz)
    returns int
    language sql immutable;

create function redrive.track_open()
    returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;

create function redrive.turn_history_v1(today date)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 300ms
    set jit = off;

create function redrive.unclaimed_v1(ids bigint[])
    returns bigint[]
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.unfit_headers_v1(headers jsonb, redrives int)
    returns text
    language sql immutable;

create function redrive.unhandled_v1()
    returns table(queue text, kind text, jobs bigint, handled text[])
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.unhandled_v1 to redrive_operator, redrive_viewer, redrive_worker;

create function redrive.unique_fault_v1(payload jsonb, run_at timestamptz, idempotency_key text,
    delay interval, unique_for interval, unique_by text[], on_conflict text, batch bigint)
    returns text
    language sql immutable;

create function redrive.unique_key_v1(queue text, tenant text, ordering_key text, payload jsonb,
    fields text[])
    returns text
    language sql immutable;

create function redrive.unjudged_v1(batch int)
    returns table(fingerprint text, fixed_in text[], resolved_at timestamptz, since jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.unjudged_v1 to redrive_worker;

create function redrive.unpark_v1(keys int)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_sort = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.unpark_v1 to redrive_worker;

create function redrive.unrecorded_v1(since timestamptz, until timestamptz, step interval, of_queue
    text, of_kind text, by_queue boolean, by_kind boolean)
    returns table(at timestamptz, queue text, kind text, enqueued bigint, completed bigint, failed
        bigint, retried bigint, died bigint, redriven bigint)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.unrecorded_v1 to redrive_agent, redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.use_link_v1(link text)
    returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off;
grant execute on function redrive.use_link_v1 to redrive_operator;

create function redrive.verify_audit_v1(after bigint, batch int, out place bigint, out lines int,
    out more boolean, out fault text)
    returns record
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set jit = off;
grant execute on function redrive.verify_audit_v1 to redrive_operator, redrive_viewer,
    redrive_worker;

create function redrive.wait_for_lane_v1(of_queue text, of_priority smallint, of_lane smallint,
    patience int)
    returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0
    set jit = off;

create function redrive.waited_for_v1(names text[])
    returns setof text
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.wake_keys_v1(queues text[], keys text[])
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.wake_slot_v1(queue text)
    returns int
    language sql immutable;
grant execute on function redrive.wake_slot_v1 to redrive_worker;

create function redrive.wake_v1(name text, n int, is_served boolean)
    returns int
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;

create function redrive.walk_jobs_v1(only_queues text[], states text[], after text, looks int)
    returns table(id bigint, place text, state text, worker int)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
    set jit = off;
grant execute on function redrive.walk_jobs_v1 to redrive_agent, redrive_operator;

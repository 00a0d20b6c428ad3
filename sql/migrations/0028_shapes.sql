-- Columns of JSON that only functions write keep their shape: what cannot be read cannot be stored.
-- serves: 1

-- Rows that are there are not scanned, because the tables may be large.
alter table redrive.audit
    add constraint audit_detail_shape check (jsonb_typeof(detail) = 'object') not valid;
alter table redrive.campaigns
    add constraint campaigns_filter_shape check (jsonb_typeof(filter) = 'object') not valid,
    add constraint campaigns_blocked_shape check (jsonb_typeof(blocked) = 'object') not valid,
    add constraint campaigns_plan_shape check (jsonb_typeof(plan) = 'object') not valid,
    add constraint campaigns_conditions_shape check (jsonb_typeof(conditions) = 'object') not valid;
alter table redrive.checkpoints
    add constraint checkpoints_data_shape check (jsonb_typeof(data) = 'object') not valid;
alter table redrive.dead_letters
    add constraint dead_letters_notes_shape check (jsonb_typeof(notes) = 'array') not valid;
-- A start shows the patches of edits, and a rotation of keys removes their values.
alter table redrive.edits
    add constraint edits_patch_shape check (
        jsonb_typeof(patch) = 'array'
        and not patch @? '$[*] ? (@.type() != "object" || !exists(@.op) || !exists(@.path))'
    ) not valid;
alter table redrive.failures
    add constraint failures_detail_shape check (jsonb_typeof(detail) = 'object') not valid;
alter table redrive.groups
    add constraint groups_versions_shape check (jsonb_typeof(versions) = 'object') not valid,
    add constraint groups_since_shape check (jsonb_typeof(since) = 'object') not valid;
alter table redrive.progress
    add constraint progress_detail_shape check (jsonb_typeof(detail) = 'object') not valid;
alter table redrive.proposals
    add constraint proposals_detail_shape check (jsonb_typeof(detail) = 'object') not valid;
alter table redrive.reservoir_samples
    add constraint reservoir_samples_facts_shape check (jsonb_typeof(facts) = 'object') not valid;
alter table redrive.results
    add constraint results_result_shape check (jsonb_typeof(result) = 'object') not valid;
alter table redrive.snapshots
    add constraint snapshots_body_shape check (jsonb_typeof(body) = 'object') not valid;
alter table redrive.workers
    add constraint workers_progress_shape check (jsonb_typeof(progress) = 'object') not valid,
    add constraint workers_depends_on_shape check (jsonb_typeof(depends_on) = 'object') not valid;

-- Grant each role its rights. This runs after each migration; redrive migrate creates the roles.
-- Only the owner can write a table: the functions above are the only way in. The one exception is
-- COPY: a producer may insert the columns that enqueue would fill, and the same constraints hold.
-- A right that an older release granted and this one does not is revoked, too.
revoke all on all tables in schema redrive
    from public, redrive_producer, redrive_worker, redrive_operator, redrive_viewer,
         redrive_encryptor, redrive_agent;
revoke all on all functions in schema redrive
    from public, redrive_producer, redrive_worker, redrive_operator, redrive_viewer,
         redrive_encryptor, redrive_agent;
revoke all on schema redrive from public;
-- Not `in schema`: a default grant to public can only be revoked for the whole database.
alter default privileges revoke execute on functions from public;

grant usage on schema redrive to redrive_producer, redrive_worker, redrive_operator, redrive_viewer,
    redrive_encryptor, redrive_agent;
-- Each program reads this first.
grant select on redrive.migrations
    to redrive_producer, redrive_worker, redrive_operator, redrive_viewer, redrive_encryptor,
       redrive_agent;

grant execute on function
    redrive.enqueue(text, jsonb, text, timestamptz, int, int, text, text, text, interval, jsonb,
                    interval, interval, text[], text, bigint),
    redrive.enqueue_v1(text, jsonb, text, timestamptz, int, int, text, text, text, interval, jsonb,
                       interval, interval, text[], text, bigint),
    redrive.enqueue_many_v1(jsonb),
    redrive.open_batch_v1(jsonb, jsonb, interval), redrive.close_batch_v1(bigint)
to redrive_producer, redrive_worker, redrive_operator;
grant insert (kind, payload, queue, run_at, priority, max_attempts, headers)
    on redrive.jobs to redrive_producer, redrive_worker, redrive_operator;

grant execute on function
    redrive.first_time_v1(text),
    redrive.register_v1(text, text, interval, text[], text[], jsonb, text[]),
    redrive.cancelled_v1(int[]), redrive.end_cancellations_v1(int),
    redrive.retire_v1(int, bigint[]),
    redrive.beat_v1(int[], int[], jsonb[]), redrive.beat_v2(int[], int[], jsonb[]),
    redrive.others_v1(int[]),
    redrive.run_alone_v1(int, bigint),
    redrive.forgive_v1(bigint[], int[]),
    redrive.wake_slot_v1(text),
    redrive.claim_v1(int, text[], smallint[], smallint[], timestamptz[], bigint[], bigint[], boolean,
                     int, int),
    redrive.claimed_v1(int, bigint),
    redrive.lanes_v1(text[]), redrive.lanes_v2(text[], text, int, int, int),
    redrive.new_lanes_v1(text[]), redrive.pending_v1(text[], text[], interval),
    redrive.complete_v1(int[], bigint[], bigint[], int[], bigint[]),
    redrive.complete_in_transaction_v1(int, bigint, int), redrive.busy_v1(bigint[]),
    redrive.end_left_open_v1(bigint[], int[]), redrive.delivery_mark_v1(bigint, int),
    redrive.settle_v1(int[], bigint[], bigint[], int[], text[], timestamptz[], float8[], boolean[],
                      int[], jsonb[], text[], bigint[]),
    redrive.side_effects_v1(int[], bigint[], int[], text[], jsonb[]),
    redrive.keep_checkpoints_v1(int[], bigint[], bigint[], int[], jsonb[]),
    redrive.keep_progress_v1(int[], bigint[], bigint[], int[], float8[], jsonb[]),
    redrive.complete_with_results_v1(int[], bigint[], bigint[], int[], bigint[], bigint[], jsonb[],
                                     float8[]),
    redrive.breakers_v1(text[], int[], int[], int[], float8[], float8[]),
    redrive.take_probe_v1(text, int, interval), redrive.mark_lost_v1(interval),
    redrive.advance_floors_v1(),
    redrive.rescue_v1(interval),
    redrive.unpark_v1(int), redrive.take_chore_v1(text, interval),
    redrive.take_chores_v1(text[], interval[]),
    redrive.fold_batches_v1(int)
to redrive_worker;
grant execute on function redrive.keep_samples_v1(text[], jsonb[]) to redrive_worker;
grant execute on function redrive.count_times_v1(text[], text[], text[], text[]) to redrive_worker;
-- The exporter calls these, too, because they must run while no worker is up. They cannot be
-- misused.
grant execute on function redrive.sample_v1(), redrive.fold_v1(), redrive.fold_groups_v1(),
    redrive.fold_series_v1()
to redrive_worker, redrive_viewer;
grant execute on function
    redrive.declare_limits_v1(text[], jsonb), redrive.tend_limits_v1(int)
to redrive_worker;
grant execute on function redrive.limits_v1(), redrive.limited_v1()
to redrive_viewer, redrive_worker, redrive_operator;
grant execute on function
    redrive.set_limit_v1(text, int, float8, text, text), redrive.limit_line_v1(bigint[]),
    redrive.names_of_limits_v1()
to redrive_operator;
grant execute on function redrive.forget_v1(int) to redrive_worker, redrive_operator;
grant execute on function redrive.tend_history_v1() to redrive_worker;
grant execute on function
    redrive.set_retention_v1(text, interval, text, text),
    redrive.done_chore_v1(text, interval), redrive.set_objective_v1(text, text, float8, text, text),
    redrive.set_objective_v2(text, text, text, float8, text, text),
    redrive.set_owner_v1(text, text, text, text, text, text)
to redrive_operator;
grant execute on function redrive.owner_of_v1(text, text)
to redrive_viewer, redrive_worker, redrive_operator;

grant select on redrive.totals to redrive_viewer, redrive_worker, redrive_operator;
-- It quotes failure messages, so viewers may not read it.
grant select on redrive.grouped to redrive_worker, redrive_operator;
grant execute on function
    redrive.depths_v1(), redrive.added_per_minute_v1(), redrive.oldest_dead_v1(),
    redrive.oldest_retrying_v1(), redrive.failing_v1(int), redrive.stats_v1(interval), redrive.unhandled_v1(), redrive.names_used_v1(),
    redrive.is_alive_v1(timestamptz, timestamptz, interval),
    redrive.due_v1(text[], text[]), redrive.standing_v1(interval), redrive.lost_workers_v1(),
    redrive.redrive_rates_v1(text[]),
    redrive.read_series_v1(int, timestamptz, timestamptz, interval, text, text, boolean, boolean),
    redrive.read_queue_series_v1(int, timestamptz, timestamptz, interval, text),
    redrive.unrecorded_v1(timestamptz, timestamptz, interval, text, text, boolean, boolean),
    redrive.read_marks_v1(timestamptz, timestamptz, text, text, int)
to redrive_viewer, redrive_worker, redrive_operator;
grant select on redrive.workers, redrive.claims, redrive.shown_queues, redrive.chores,
    redrive.shown_campaigns, redrive.kind_redrives, redrive.objectives, redrive.kind_objectives,
    redrive.owners, redrive.retention, redrive.shown_breakers,
    redrive.history_queues, redrive.batches, redrive.batch_deltas, redrive.contact
    to redrive_viewer, redrive_worker, redrive_operator;
-- Viewers read these by the views above, without texts of people and values of payloads.
grant select on redrive.campaigns, redrive.queues, redrive.breakers
    to redrive_worker, redrive_operator;
grant select on redrive.shown_campaigns, redrive.shown_queues, redrive.shown_breakers
    to redrive_agent;
grant execute on function redrive.reads_texts_v1()
    to redrive_viewer, redrive_worker, redrive_operator, redrive_agent;
-- The console queries with the role of the user who signed in.
grant select on redrive.ended_sessions to redrive_viewer, redrive_operator;
grant execute on function redrive.end_session_v1(text) to redrive_viewer, redrive_operator;

grant select on redrive.jobs, redrive.dead_letters, redrive.failures, redrive.side_effects,
    redrive.checkpoints, redrive.progress, redrive.results, redrive.history,
    redrive.audit, redrive.audit_chain, redrive.completions, redrive.groups, redrive.open_groups,
    redrive.edits, redrive.reservoir_samples, redrive.campaign_jobs, redrive.approvals,
    redrive.heals, redrive.imports, redrive.held_groups
    to redrive_operator;
-- Only workers carry out started campaigns. The caller of a step decides how many jobs it releases,
-- so people may not call it.
grant execute on function
    redrive.live_campaigns_v1(), redrive.look_at_campaign_v1(bigint),
    redrive.step_campaign_v1(bigint, int, text, int, float8, text, float8, float8)
to redrive_worker;
grant execute on function
    redrive.say_approvals_v1(text[], text[]), redrive.say_heals_v1(text, jsonb),
    redrive.declare_redrives_v1(text[], jsonb),
    redrive.heal_v1(int, float8), redrive.unjudged_v1(int),
    redrive.judge_v1(text, timestamptz, jsonb, text), redrive.hold_failing_v1(int),
    redrive.fixed_v1(), redrive.retry_fixed_v1(text, text, int, float8)
to redrive_worker;
grant execute on function
    redrive.handles_v1(text[], text),
    redrive.redrive_obstacle_v2(bigint, int, text, text, text, text, text, text, int, boolean, int,
                                jsonb),
    redrive.payload_fault(jsonb),
    redrive.plan_campaign_v1(jsonb, int, text), redrive.leave_out_v1(bigint, int[], text[]),
    redrive.lock_starts_v1(), redrive.start_campaign_v1(bigint, text, text, float8, int, float8, timestamptz, jsonb),
    redrive.pause_campaign_v1(bigint, text, text), redrive.resume_campaign_v1(bigint, text, text),
    redrive.cancel_campaign_v1(bigint, text, text), redrive.holds_v1(jsonb, jsonb, text[]),
    redrive.groups_named_v1(text), redrive.plan_retry_v1(text, text),
    redrive.hold_group_v1(text, boolean, text, text), redrive.held_until_v1(),
    redrive.give_up_v1(bigint[], text, text),
    redrive.dismiss_v1(bigint[], text, text),
    redrive.reopen_v1(bigint[], text, text), redrive.reveal_v1(bigint, text, text),
    redrive.edit_v1(bigint[], bytea[], jsonb[], text[], jsonb, text[], text, text),
    redrive.in_campaign_v1(bigint[]), redrive.healing_v1(text[]),
    redrive.note_v1(bigint, text, text), redrive.assign_v1(bigint[], text, text, text),
    redrive.purge_v1(bigint, bigint[], int[], text[]),
    redrive.force_breaker_v1(text, text, text, text),
    redrive.mute_v1(text, timestamptz, text, text),
    redrive.resolve_v1(text, text[], text[], text, text),
    redrive.acknowledge_v1(text[], boolean, text, text), redrive.queue_of_v1(bigint),
    redrive.owned_v1(text),
    redrive.pause_v1(text, text, text), redrive.resume_v1(text, text, text),
    redrive.set_history_v1(text, int, text, text),
    redrive.set_lanes_v1(text, int, text, text), redrive.limit_names_v1(text, int, text, text),
    redrive.import_v1(text, jsonb, text, text), redrive.import_failures_v1(bigint[], jsonb[])
to redrive_operator;

-- redrive check names sessions, so that somebody can end the right one.
grant execute on function
    redrive.health_v1(jsonb), redrive.oldest_transactions_v1(int), redrive.sessions_v1(int)
to redrive_viewer, redrive_operator;
-- So does /readyz of a worker.
grant execute on function redrive.oldest_transactions_v1(int) to redrive_worker;
grant execute on function
    redrive.walk_jobs_v1(text[], text[], text, int), redrive.live_jobs_v1(bigint[]),
    redrive.cancel_v1(bigint[], text, text), redrive.run_now_v1(bigint[], text, text)
to redrive_operator;
-- A role that may enqueue a job may also wait for its end.
grant execute on function redrive.outcome_v1(bigint, boolean)
to redrive_producer, redrive_worker, redrive_operator;

grant execute on function
    redrive.declare_schedules_v1(int, text, jsonb), redrive.due_schedules_v1(),
    redrive.fire_schedule_v1(text, bigint, timestamptz, timestamptz[], timestamptz)
to redrive_worker;
grant execute on function redrive.schedules_v1()
    to redrive_viewer, redrive_worker, redrive_operator;
grant execute on function
    redrive.pause_schedule_v1(text, text, text), redrive.resume_schedule_v1(text, text, text),
    redrive.run_schedule_v1(text, text, text)
to redrive_operator;

-- This role replaces contents of jobs by encrypted ones, and does nothing else to them.
grant select on redrive.jobs, redrive.dead_letters, redrive.failures, redrive.side_effects,
    redrive.checkpoints, redrive.progress, redrive.results, redrive.history,
    redrive.edits
    to redrive_encryptor;
grant execute on function
    redrive.reencrypt_v1(bigint, text, bigint[], int[], jsonb[], jsonb[], text[]),
    redrive.hide_messages_v1()
to redrive_encryptor;
grant execute on function
    redrive.hold_run_v1(text), redrive.begin_run_v1(text, text, text, int, jsonb),
    redrive.end_run_v1(bigint)
to redrive_operator, redrive_encryptor;

grant execute on function redrive.verify_audit_v1(bigint, int)
    to redrive_viewer, redrive_worker, redrive_operator;

-- The MCP server, which redacts what it reads. This role can read and propose. It cannot start or
-- change anything, even if the server is broken.
grant select on redrive.jobs, redrive.dead_letters, redrive.failures, redrive.side_effects,
    redrive.checkpoints, redrive.progress, redrive.results, redrive.history, redrive.audit,
    redrive.groups, redrive.open_groups, redrive.held_groups, redrive.grouped, redrive.edits,
    redrive.reservoir_samples, redrive.campaigns, redrive.queues, redrive.workers,
    redrive.claims, redrive.breakers, redrive.totals, redrive.completions,
    redrive.kind_redrives, redrive.kind_objectives, redrive.contact, redrive.imports
    to redrive_agent;
grant execute on function
    redrive.call_tool_v1(text, text, text, jsonb, int, int),
    redrive.propose_v1(text, text, text, text, jsonb),
    redrive.propose_campaign_v1(jsonb, int, text, text, text),
    redrive.groups_named_v1(text), redrive.queue_of_v1(bigint), redrive.owner_of_v1(text, text),
    redrive.owned_v1(text), redrive.in_campaign_v1(bigint[]), redrive.redrive_rates_v1(text[]),
    redrive.redrive_obstacle_v2(bigint, int, text, text, text, text, text, text, int, boolean, int,
                                jsonb),
    redrive.payload_fault(jsonb),
    redrive.walk_jobs_v1(text[], text[], text, int), redrive.live_jobs_v1(bigint[]),
    redrive.read_series_v1(int, timestamptz, timestamptz, interval, text, text, boolean, boolean),
    redrive.unrecorded_v1(timestamptz, timestamptz, interval, text, text, boolean, boolean),
    redrive.read_marks_v1(timestamptz, timestamptz, text, text, int),
    redrive.is_alive_v1(timestamptz, timestamptz, interval), redrive.failing_v1(int),
    redrive.held_until_v1(), redrive.limits_v1(),
    redrive.limit_line_v1(bigint[]), redrive.standing_v1(interval),
    redrive.due_v1(text[], text[]), redrive.handles_v1(text[], text)
    to redrive_agent;
grant execute on function redrive.decide_v1(bigint, boolean, text, text) to redrive_operator;
grant select on redrive.proposals to redrive_operator;
grant execute on function redrive.use_link_v1(text) to redrive_operator;
grant select on redrive.used_links to redrive_operator;

"""Hold each function of the catalog in an open transaction, while workers run other jobs.

`python -m tests.flow.held_open --hold 30` prints a table: the function, the longest wait of other
jobs while it was held, and what its transaction had locked. The first line is for no transaction.

A function that producers, workers or operators may call needs a recipe here: a call that locks what
it locks in earnest. tests/sql/test_waits.py checks that each recipe locks something. It also calls
every function of a worker beside each of them.
"""

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from redrive import enqueue
from redrive.worker.protocol import Report
from redrive.worker.round_trip import Lane
from tests.factories import (
    claim,
    exchange,
    failure,
    lanes_of,
    let_die,
    make_job,
    redrive,
    settle,
)
from tests.flow.harness import Worker, Workers, wait_for, workers_on
from tests.postgres import Connection, Database, Session, embedded

HANDLERS = "tests.flow.free:jobs"
SETTINGS = {"redrive_heartbeat_ttl": 12, "redrive_drain_timeout": 5}

RECIPES: dict[str, LiteralString] = {
    # producers
    "enqueue": "select redrive.enqueue('held.plain', '{}', idempotency_key => 'held')",
    "enqueue_v1": "select redrive.enqueue_v1('held.limited', '{\"key\": \"new\"}', 'default', null,"
    " 0, null, null, null, null, null, '{}', null, null, null, null, %(batch)s)",
    "enqueue_many_v1": 'select redrive.enqueue_many_v1(\'{"kind": ["held.plain", "held.plain"],'
    ' "ordering_key": ["held-order", "held-order"]}\')',
    "replace": "select redrive.enqueue('held.plain', '{\"c\": 1}', unique_for => '1 hour',"
    " on_conflict => 'replace', delay => '2 hours')",
    "open_batch_v1": 'select redrive.open_batch_v1(null, \'{"kind": "free.callback"}\')',
    "close_batch_v1": "select redrive.close_batch_v1(%(batch)s)",
    "outcome_v1": "select redrive.outcome_v1(%(waiting)s, true)",
    # what a handler calls, or a worker for it
    "complete_in_transaction_v1": "select redrive.complete_in_transaction_v1(%(me)s, %(mine0)s, 1)",
    "complete a limited job": "select redrive.complete_in_transaction_v1(%(me)s, %(mine1)s, 1)",
    "complete an ordered job": "select redrive.complete_in_transaction_v1(%(me)s, %(mine2)s, 1)",
    "complete a job of a batch": "select redrive.complete_in_transaction_v1(%(me)s, %(mine3)s, 1)",
    "first_time_v1": "select redrive.first_time_v1('held')",
    "complete_v1": "select redrive.complete_v1(array[%(me)s], array[%(claim)s], array[%(mine4)s],"
    " array[1], null)",
    "complete_with_results_v1": "select redrive.complete_with_results_v1(array[%(me)s],"
    " array[%(claim)s], array[%(mine5)s], array[1], null, array[%(mine5)s],"
    " array['{\"value\": 1}'::jsonb], array[60::float8])",
    "settle_v1": "select redrive.settle_v1(array[%(me)s], array[%(claim)s], array[%(mine6)s],"
    " array[1], array['dead'], array[null::timestamptz], array[0::float8], array[false], array[0],"
    " array[%(failure)s::jsonb], array['not_retryable'], '{}')",
    "side_effects_v1": "select redrive.side_effects_v1(array[%(me)s], array[%(mine7)s], array[1],"
    " array['charged'], array['{}'::jsonb])",
    "keep_checkpoints_v1": "select redrive.keep_checkpoints_v1(array[%(me)s], array[%(claim)s],"
    " array[%(mine8)s], array[1], array['{}'::jsonb])",
    "keep_progress_v1": "select redrive.keep_progress_v1(array[%(me)s], array[%(claim)s],"
    " array[%(mine8)s], array[1], array[0.5::float8], array['{}'::jsonb])",
    "keep_samples_v1": "select redrive.keep_samples_v1('{held.plain}', array['{}'::jsonb])",
    "busy_v1": "select redrive.busy_v1(array[%(mine9)s])",
    "delivery_mark_v1": "select redrive.delivery_mark_v1(%(mine9)s, 1)",
    "end_left_open_v1": "select redrive.end_left_open_v1(array[%(mine9)s], array[99])",
    # workers
    "register_v1": "select redrive.register_v1('held', '1', '1 hour', '{held.*}', null, null, null)",
    "declare_limits_v1": "select redrive.declare_limits_v1('{held.limited}',"
    ' \'{"held.limited": ["held:{key}", "new"]}\')',
    "declare_schedules_v1": "select redrive.declare_schedules_v1(%(me)s, '1', %(declared)s)",
    "declare_redrives_v1": "select redrive.declare_redrives_v1('{held.plain}',"
    ' \'{"held.plain": {"rate": 5, "repeatable": true}}\')',
    "redrive_rates_v1": "select redrive.redrive_rates_v1('{held.plain}')",
    "handles_v1": "select redrive.handles_v1('{held.*}', 'held.plain')",
    "say_approvals_v1": "select redrive.say_approvals_v1('{held.plain}', '{held.plain}')",
    "say_heals_v1": "select redrive.say_heals_v1('1', '{\"held.plain\": {\"canaries\": 4}}')",
    "beat_v1": "select redrive.beat_v1(array[%(me)s], array[1], array['{}'::jsonb])",
    "retire_v1": "select redrive.retire_v1(%(other)s, '{}')",
    "run_alone_v1": "select redrive.run_alone_v1(%(me)s, %(mine9)s)",
    "cancelled_v1": "select redrive.cancelled_v1(array[%(me)s])",
    "beat_v2": "select redrive.beat_v2(array[%(me)s], array[1], array['{}'::jsonb])",
    "others_v1": "select redrive.others_v1(array[%(me)s])",
    "claim_v1": "select redrive.claim_v1(%(me)s, '{held}', '{0}', '{0}', '{epoch}', '{0}', '{0}',"
    " true, 1)",
    "claimed_v1": "select redrive.claimed_v1(%(me)s, 0)",
    "lanes_v1": "select redrive.lanes_v1(null)",
    "lanes_v2": "select redrive.lanes_v2(null, '', 0, 0, 1000)",
    "new_lanes_v1": "select redrive.new_lanes_v1(null)",
    "pending_v1": "select redrive.pending_v1(null, null, '1 s')",
    "due_v1": "select redrive.due_v1(null, null)",
    "wake_slot_v1": "select redrive.wake_slot_v1('held')",
    "breakers_v1": "select redrive.breakers_v1('{held}', '{1}', '{0}', '{5}', '{10}', '{5}')",
    "take_probe_v1": "select redrive.take_probe_v1('held', %(me)s, '1 s')",
    "forgive_v1": "select redrive.forgive_v1(array[%(forgiven)s], array[1])",
    "mark_lost_v1": "select redrive.mark_lost_v1('1 hour')",
    "rescue_v1": "select redrive.rescue_v1('1 hour')",
    "advance_floors_v1": "select redrive.advance_floors_v1()",
    "end_cancellations_v1": "select redrive.end_cancellations_v1(100)",
    # chores
    "take_chore_v1": "select redrive.take_chore_v1('fold', '0 s')",
    "take_chores_v1": "select redrive.take_chores_v1('{fold,rescue}', '{0 s,0 s}')",
    "fold_v1": "select redrive.fold_v1()",
    "fold_groups_v1": "select redrive.fold_groups_v1()",
    "fold_batches_v1": "select redrive.fold_batches_v1(100)",
    "sample_v1": "select redrive.sample_v1()",
    "count_times_v1": "select redrive.count_times_v1('{held}', '{held.plain}',"
    " array[array_fill(1, array[17])::text], array[array_fill(1, array[18])::text])",
    "fold_series_v1": "select redrive.fold_series_v1()",
    "read_series_v1": "select redrive.read_series_v1(60, now() - interval '1 day', now(),"
    " '1 hour', null, null, true, true)",
    "read_queue_series_v1": "select redrive.read_queue_series_v1(60, now() - interval '1 day',"
    " now(), '1 hour', null)",
    "unrecorded_v1": "select redrive.unrecorded_v1(now() - interval '1 day', now(), '1 hour',"
    " null, null, true, true)",
    "read_marks_v1": "select redrive.read_marks_v1(now() - interval '1 day', now(), null, null, 9)",
    "stats_v1": "select redrive.stats_v1('0 s')",
    "health_v1": "select redrive.health_v1(null)",
    "oldest_transactions_v1": "select * from redrive.oldest_transactions_v1(1)",
    "sessions_v1": "select * from redrive.sessions_v1(1)",
    "forget_v1": "select redrive.forget_v1(100)",
    "tend_history_v1": "select redrive.tend_history_v1()",
    "fixed_v1": "select redrive.fixed_v1()",
    "retry_fixed_v1": "select redrive.retry_fixed_v1('fixed', 'why', 3, 0.1)",
    "hold_failing_v1": "select redrive.hold_failing_v1(100)",
    "tend_limits_v1": "select redrive.tend_limits_v1(100)",
    "unpark_v1": "select redrive.unpark_v1(100)",
    "due_schedules_v1": "select redrive.due_schedules_v1()",
    "fire_schedule_v1": "select redrive.fire_schedule_v1(s.name, s.declaration, s.next_at,"
    " array[s.next_at], now() + interval '1 day')"
    " from redrive.schedules s where s.name = 'held'",
    "unjudged_v1": "select redrive.unjudged_v1(100)",
    "judge_v1": "select redrive.judge_v1(g.fingerprint, g.resolved_at, g.since, '1.4.2')"
    " from redrive.groups g where g.fingerprint = 'fixed'",
    "heal_v1": "select redrive.heal_v1(5, 0.1)",
    "live_campaigns_v1": "select redrive.live_campaigns_v1()",
    "look_at_campaign_v1": "select redrive.look_at_campaign_v1(%(going)s)",
    "step_campaign_v1": "select redrive.step_campaign_v1(%(going)s, 0, 'running', 1, null, 'x')",
    "abort a campaign": "select redrive.step_campaign_v1(%(going)s, 0, 'aborted', 0, null, 'x')",
    # the owner of the tables, and a producer that copies
    "lock a job that waits": "select from redrive.jobs where id = %(waiting)s for update",
    "lock a job that runs": "select from redrive.jobs where id = %(mine9)s for update",
    "lock a job of a lost worker": "select from redrive.jobs where id = %(redriven)s for update",
    "lock a dead letter": "select from redrive.dead_letters where id = %(dead10)s for update",
    "copy": "insert into redrive.jobs (kind, queue) values ('held.plain', 'copied')",
    # operators, on live jobs
    "cancel_v1": "select redrive.cancel_v1(array[%(waiting)s], 'ada', 'why')",
    "run_now_v1": "select redrive.run_now_v1(array[%(waiting)s], 'ada', 'why')",
    "reveal_v1": "select redrive.reveal_v1(%(waiting)s, 'ada', 'why')",
    "live_jobs_v1": "select redrive.live_jobs_v1(array[%(waiting)s])",
    "walk_jobs_v1": "select redrive.walk_jobs_v1(null, null, null, 10)",
    "limit_line_v1": "select redrive.limit_line_v1(array[%(waiting)s])",
    "pause_v1": "select redrive.pause_v1('held', 'ada', 'why')",
    "resume_v1": "select redrive.resume_v1('resting', 'ada', 'why')",
    "set_lanes_v1": "select redrive.set_lanes_v1('held', 4, 'ada', 'why')",
    "set_history_v1": "select redrive.set_history_v1('held', 9, 'ada', 'why')",
    "set_limit_v1": "select redrive.set_limit_v1('held:a', 3, 2, 'ada', 'why')",
    "limit_names_v1": "select redrive.limit_names_v1('queues', 900, 'ada', 'why')",
    "owner_of_v1": "select redrive.owner_of_v1('held', 'held.plain')",
    "owned_v1": "select redrive.owned_v1('ada')",
    "queue_of_v1": "select redrive.queue_of_v1(1)",
    "set_owner_v1": "select redrive.set_owner_v1('held', '*', 'ada', null, 'ada', 'why')",
    "set_objective_v2": "select redrive.set_objective_v2('held', 'held.plain', 'dlq_added_5m', 9,"
    " 'ada', 'why')",
    "acknowledge_v1": "select redrive.acknowledge_v1(array['f1'], true, 'ada', 'why')",
    "set_objective_v1": "select redrive.set_objective_v1('held', 'dlq_added_5m', 9, 'ada', 'why')",
    "set_retention_v1": "select redrive.set_retention_v1('keys', '9 days', 'ada', 'why')",
    "force_breaker_v1": "select redrive.force_breaker_v1('held', 'open', 'ada', 'why')",
    "force an old breaker": "select redrive.force_breaker_v1('old', 'open', 'ada', 'why')",
    "pause_schedule_v1": "select redrive.pause_schedule_v1('held', 'ada', 'why')",
    "resume_schedule_v1": "select redrive.resume_schedule_v1('resting', 'ada', 'why')",
    "run_schedule_v1": "select redrive.run_schedule_v1('held', 'ada', 'why')",
    # operators, on dead letters
    "assign_v1": "select redrive.assign_v1(array[%(dead0)s], 'bo', 'ada', 'why')",
    "dismiss_v1": "select redrive.dismiss_v1(array[%(dead1)s], 'ada', 'why')",
    "reopen_v1": "select redrive.reopen_v1(array[%(dismissed)s], 'ada', 'why')",
    "note_v1": "select redrive.note_v1(%(dead2)s, 'ada', 'seen')",
    "note on a job to cancel": "select redrive.note_v1(%(unwanted)s, 'ada', 'seen')",
    "note on a redriven job": "select redrive.note_v1(%(redriven)s, 'ada', 'seen')",
    "note on a job of a campaign": "select redrive.note_v1(%(dead10)s, 'ada', 'seen')",
    "note on a job to forgive": "select redrive.note_v1(%(forgiven)s, 'ada', 'seen')",
    "mute_v1": "select redrive.mute_v1('f1', now() + interval '1 hour', 'ada', 'why')",
    "resolve_v1": "select redrive.resolve_v1('fixed', '{1.4.2}', '{}', 'ada', 'why')",
    "purge_v1": "select redrive.purge_v1(null, array[%(dead4)s], '{0}', '{open}')",
    "edit_v1": "select redrive.edit_v1(array[%(dead5)s], (select array_agg(sha256(convert_to("
    "d.redrives || ':' || d.payload::text, 'UTF8'))) from redrive.dead_letters d"
    " where d.id = %(dead5)s), array['{\"n\": 2}'::jsonb], '{null}', '[]', '{/n}', 'ada', 'why')",
    "import_v1": "select redrive.import_v1('sqs', jsonb_build_array(jsonb_build_object("
    "'source_id', '1', 'kind', 'held.plain', 'queue', 'held', 'payload', '{}'::jsonb, 'headers',"
    " '{}'::jsonb, 'reason', 'gave_up', 'category', 'bug', 'error_class', 'E', 'message', '',"
    " 'fingerprint', 'f', 'attempts', 1)), 'ada', 'why')",
    "import_failures_v1": "select redrive.import_failures_v1(array[i.id],"
    " array[%(failure)s::jsonb]) from redrive.import_v1('sqs', jsonb_build_array("
    "jsonb_build_object('source_id', '2', 'kind', 'held.plain', 'queue', 'held', 'payload',"
    " '{}'::jsonb, 'headers', '{}'::jsonb, 'reason', 'gave_up', 'category', 'bug', 'error_class',"
    " 'E', 'message', '', 'fingerprint', 'f', 'attempts', 1)), 'ada', 'why') i",
    "in_campaign_v1": "select redrive.in_campaign_v1(array[%(dead0)s])",
    "groups_named_v1": "select redrive.groups_named_v1('f')",
    "healing_v1": "select redrive.healing_v1(null)",
    "redrive_obstacle_v2": "select redrive.redrive_obstacle_v2(1, 0, 'a', 'k', 'f', 'gave_up',"
    " 'invalid', '1', 1, true, 5, '{}')",
    "holds_v1": "select redrive.holds_v1('{}', '{}', null)",
    # operators, on campaigns and runs
    "plan_campaign_v1": "select redrive.plan_campaign_v1('{\"kind\": [\"held.plain\"]}', 5, 'ada')",
    "plan_retry_v1": "select redrive.plan_retry_v1('f1', 'ada')",
    "hold_group_v1": "select redrive.hold_group_v1('f1', true, 'ada', 'why')",
    "held_until_v1": "select redrive.held_until_v1()",
    "give_up_v1": "select redrive.give_up_v1(array[%(waiting)s], 'ada', 'why')",
    "lock_starts_v1": "select redrive.lock_starts_v1()",
    "start_campaign_v1": "select redrive.start_campaign_v1(%(plan)s, 'ada', 'why', 1, 0, 0.1, null,"
    " '{}')",
    "leave_out_v1": "select redrive.leave_out_v1(%(plan)s, '{1}', '{invalid}')",
    "pause_campaign_v1": "select redrive.pause_campaign_v1(%(going)s, 'ada', 'why')",
    "resume_campaign_v1": "select redrive.resume_campaign_v1(%(paused)s, 'ada', 'why')",
    "cancel_campaign_v1": "select redrive.cancel_campaign_v1(%(going)s, 'ada', 'why')",
    "hold_run_v1": "select redrive.hold_run_v1('purge')",
    "begin_run_v1": "select redrive.begin_run_v1('purge', 'ada', 'why', 0, '{}')",
    "end_run_v1": "select redrive.end_run_v1(redrive.begin_run_v1('purge', 'ada', 'why', 0, '{}'))",
    "done_chore_v1": "select redrive.done_chore_v1('purge', '1 day')",
    # agents, and what they propose
    "call_tool_v1": "select redrive.call_tool_v1('claude', 'ada', 'report', '{}', 9, 9)",
    "propose_v1": "select redrive.propose_v1('mute', 'claude', 'ada', 'why',"
    " '{\"seconds\": 9}')",
    "propose_campaign_v1": 'select redrive.propose_campaign_v1(\'{"kind": ["held.plain"]}\', 5,'
    " 'claude', 'ada', 'why')",
    "decide_v1": "select redrive.decide_v1(redrive.propose_v1('mute', 'claude', 'ada', 'why',"
    " '{\"group\": \"f1\", \"seconds\": 60}'), true, 'ada', 'why')",
    "use_link_v1": "select redrive.use_link_v1('l')",
    "end_session_v1": "select redrive.end_session_v1('s')",
    # figures
    "added_per_minute_v1": "select redrive.added_per_minute_v1()",
    "depths_v1": "select redrive.depths_v1()",
    "failing_v1": "select redrive.failing_v1(100)",
    "is_alive_v1": "select redrive.is_alive_v1(now(), null, null)",
    "limited_v1": "select redrive.limited_v1()",
    "limits_v1": "select redrive.limits_v1()",
    "lost_workers_v1": "select redrive.lost_workers_v1()",
    "names_of_limits_v1": "select redrive.names_of_limits_v1()",
    "names_used_v1": "select redrive.names_used_v1()",
    "oldest_dead_v1": "select redrive.oldest_dead_v1()",
    "oldest_retrying_v1": "select redrive.oldest_retrying_v1()",
    "schedules_v1": "select redrive.schedules_v1()",
    "standing_v1": "select redrive.standing_v1('1 s')",
    "unhandled_v1": "select redrive.unhandled_v1()",
    "payload_fault": "select redrive.payload_fault('{}')",
    "reads_texts_v1": "select redrive.reads_texts_v1()",
    "verify_audit_v1": "select redrive.verify_audit_v1(null, 10)",
}
"""Calls by function. A name that is no function is another call of one."""

GRANTED: LiteralString = """
    select distinct p.proname from pg_proc p, aclexplode(p.proacl) a
    where p.pronamespace = 'redrive'::regnamespace and a.grantee::regrole::text = any (%s)
    order by 1"""
ROLES = ["redrive_producer", "redrive_worker", "redrive_operator", "redrive_agent"]

LOCKED: LiteralString = """
    select pg_current_xact_id_if_assigned() is not null or exists (
        select from pg_locks where pid = pg_backend_pid() and granted
          and (locktype = 'advisory' or locktype = 'relation'
               and mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')))"""
"""Whether this transaction may keep another one waiting. A row lock takes a transaction id."""

TABLES: LiteralString = """
    select distinct coalesce(c.relname::text, l.locktype) from pg_locks l
    left join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p')
    where l.pid = %s and l.granted and l.mode <> 'AccessShareLock'
      and (c.oid is not null or l.locktype = 'advisory')
    order by 1"""
"""The tables whose rows a session may have locked."""

SCHEDULE = (
    '{"name": "%s", "kind": "held.plain", "queue": "held", "cron": "0 0 1 1 *", "tz": "UTC",'
    ' "catch_up": "one", "payload": {}}'
)
DECLARED = f"[{SCHEDULE % 'held'}, {SCHEDULE % 'resting'}]"


def granted(session: Session) -> set[str]:
    """Return the names of all functions that producers, workers and operators may call."""
    return {name for (name,) in session.rows(GRANTED, ROLES)}


def make_objects(database: Database) -> dict[str, Any]:
    """Make what recipes name: jobs, dead letters, campaigns and so on; return their ids."""
    conn, value = database.conn, database.value
    me = value(
        "select redrive.register_v1('me', '1', '1 day', '{*}', null, null, null)"
    )
    other = value(
        "select redrive.register_v1('other', '1', '1 day', '{*}', null, null, null)"
    )
    batch = value('select redrive.open_batch_v1(null, \'{"kind": "free.callback"}\')')
    database.rows("select redrive.set_history_v1('default', 7, 'ada', 'why')")
    database.rows(
        "select redrive.declare_limits_v1('{held.limited}', '{\"held.limited\": [\"held:{key}\"]}')"
    )
    database.rows("select redrive.set_limit_v1('held:a', 1, 5, 'ada', 'why')")
    database.rows("select redrive.set_limit_v1('free:*', 2, 50, 'ada', 'why')")
    special = [
        {},
        {"kind": "held.limited", "payload": {"key": "a"}},
        {"ordering_key": "held-order"},
        {"batch": batch},
    ]
    plain: list[dict[str, Any]] = [{} for _ in range(6)]
    mine = [
        make_job(conn, **({"kind": "held.plain"} | options))
        for options in special + plain
    ]
    claimed = claim(conn, me)
    assert {job.id for job in claimed} == set(mine)
    make_job(conn, "held.plain", ordering_key="held-order")
    parked = make_job(conn, "held.limited", {"key": "a"})
    make_job(conn, "only.me", queue="held")
    given_back = make_job(conn, "held.plain")
    lanes = [lane for lane in lanes_of(conn) if lane.queue == "default"]
    assert [job.id for job in claim(conn, other, lanes=lanes)] == [given_back]
    assert database.column("select job from redrive.limit_waits") == [parked]
    doomed = [make_job(conn, "held.plain", queue="doomed") for _ in range(14)]
    reports = [
        (
            Report(job.id, 1, "dead", reason="not_retryable", failure=failure()),
            job.claim,
            me,
        )
        for job in claim(conn, me, lanes=[lane_of(conn, "doomed")])
    ]
    exchange(conn, reports=reports)
    make_job(
        conn, "held.plain", {"c": 1}, unique_for=3600, on_conflict="replace", delay=7200
    )
    database.rows("select redrive.declare_schedules_v1(%s, '1', %s)", me, DECLARED)
    database.rows(
        "update redrive.schedules set next_at = '2026-01-01 UTC' where name = 'held'"
    )
    database.rows("select redrive.pause_schedule_v1('resting', 'ada', 'why')")
    database.rows("select redrive.pause_v1('resting', 'ada', 'why')")
    plans = [
        value(
            "select redrive.plan_campaign_v1(jsonb_build_object('ids', %s::bigint[]), 5, 'a')"
            " ->> 'plan'",
            doomed[start:end],
        )
        for start, end in ((8, 10), (10, 12), (12, 14))
    ]
    for plan in plans[1:]:
        database.rows(
            "select redrive.start_campaign_v1(%s, 'ada', 'why', 1, 0, 0.1,"
            " now() + interval '1 day', '{}')",
            plan,
        )
    database.rows("select redrive.pause_campaign_v1(%s, 'ada', 'why')", plans[2])
    database.rows(
        "insert into redrive.held_groups (fingerprint, actor, why) values ('f', 'ada', 'why')"
    )
    database.rows(
        "insert into redrive.breakers (name, state) values ('held', 'half_open')"
    )
    database.rows(
        "insert into redrive.breakers (name, changed_at, window_at)"
        " select 'old', at, at from (select now() - interval '1 year' as at) t"
    )
    database.rows(
        "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
        " total, open, first_seen, last_seen, fixed_in, resolved_at, since, is_unjudged) values"
        " ('fixed', 'held.plain', 'bug', 'E', '', 1, 1, 0, now(), now(), '{1.4.2}', now(),"
        " '{\"1.4.2\": 1}', true)"
    )
    database.rows(
        "update redrive.jobs set failed_at = now(), fingerprint = 'fixed' where id = %s",
        make_job(conn, "held.plain", delay=3600),
    )
    return {
        **make_work(database, me),
        "me": me,
        "other": other,
        "batch": batch,
        "claim": claimed[0].claim,
        "waiting": make_job(conn, "held.plain", delay=3600),
        "failure": failure(),
        "declared": DECLARED,
        "plan": plans[0],
        "going": plans[1],
        "paused": plans[2],
        **{f"mine{n}": job for n, job in enumerate(mine)},
        **{f"dead{n}": job for n, job in enumerate(doomed)},
    }


def make_work(database: Database, me: int) -> dict[str, Any]:
    """Make work for chores: a lost worker, redriven and cancelled jobs, one to forgive, a heal."""
    conn = database.conn
    names = ("cancelled", "redriven", "forgiven", "unwanted", "dismissed")
    made = {name: make_job(conn, "held.plain", queue="work") for name in names}
    cancelled, redriven, forgiven, unwanted, dismissed = made.values()
    first = {job.id: job for job in claim(conn, me, lanes=[lane_of(conn, "work")])}
    database.rows("select redrive.cancel_v1(%s, 'ada', 'why')", [cancelled])
    assert settle(conn, me, first[cancelled], "cancel")
    for job in (redriven, forgiven, unwanted, dismissed):
        let_die(conn, me, first[job], failure=failure(fingerprint=f"f{job}"))
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'why')", [dismissed])
    assert redrive(conn, [redriven]) == {redriven: None}
    lost = database.value(
        "select redrive.register_v1('lost', '1', '1 day', '{*}', null, null, null)"
    )
    ordinary = make_job(conn, "held.plain", queue="work")
    assert len(claim(conn, lost, lanes=[lane_of(conn, "work")])) == len(
        [ordinary, redriven]
    )
    database.rows(
        "update redrive.workers set lost_at = now(), alone = %s where id = %s",
        redriven,
        lost,
    )
    database.rows(
        "update redrive.dead_letters set reason = 'killed_worker' where id = %s",
        forgiven,
    )
    database.rows(
        "update redrive.failures set error_class = 'WorkerLost', category = 'lost' where job = %s",
        forgiven,
    )
    database.rows(
        "select redrive.say_heals_v1('1', '{\"held.plain\": {\"canaries\": 3}}')"
    )
    assert redrive(conn, [unwanted]) == {unwanted: None}
    database.rows(
        "insert into redrive.cancellations (job, redrives, actor, why)"
        " values (%s, 1, 'ada', 'why')",
        unwanted,
    )
    return made


def lane_of(conn: Connection, queue: str) -> Lane:
    """Return the lane of a queue that has one."""
    (lane,) = {
        lane for lane in lanes_of(conn) if lane.queue == queue and not lane.is_front
    }
    return lane


@dataclass
class Hold:
    """A call whose transaction is open, and what it has locked."""

    name: str
    session: Session
    tables: list[str]


@dataclass
class World:
    """A database with something for each recipe to lock, and a worker that runs other jobs."""

    database: Database
    workers: Workers
    objects: dict[str, Any] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def prepare(self) -> None:
        """Make the objects that recipes name, and start the worker."""
        self.objects = make_objects(self.database)
        self.running = self.workers(handlers=HANDLERS, **SETTINGS).wait_ready()

    running: Worker = field(init=False)

    def call(self, name: str) -> Hold | None:
        """Call a function in a transaction that stays open; None if it locks nothing, or waits."""
        session = self.database.session(
            lock_timeout="1s", idle_in_transaction_session_timeout="10min"
        )
        session.rows("begin")
        try:
            session.conn.execute(RECIPES[name], self.objects)
        except psycopg.errors.LockNotAvailable:
            session.conn.close()
            return None
        if not session.value(LOCKED):
            session.conn.close()
            return None
        return Hold(name, session, self.database.column(TABLES, session.pid))

    def probe(self) -> float:
        """Enqueue jobs of every sort and wait until each has started; return the longest wait.

        Raises:
            AssertionError: one did not start within a minute, or started twice.
        """
        n, conn = next(self.numbers), self.database.conn
        self.enqueue_rivals()
        began = time.monotonic()
        jobs = [
            enqueue(conn, "free.plain"),
            enqueue(conn, "free.plain", priority=3, tenant=f"t{n}"),
            enqueue(conn, "free.plain", queue="free"),
            enqueue(conn, "free.plain", queue=f"new{n}"),
            enqueue(conn, "free.plain", ordering_key="free"),
            enqueue(conn, "free.plain", ordering_key="free"),
            enqueue(conn, "free.plain", idempotency_key=f"free{n}"),
            enqueue(conn, "free.plain", {"n": n}, unique_for=60),
            enqueue(conn, "free.limited", {"key": f"new{n}"}),
            enqueue(conn, "held.limited", {"key": f"new{n}"}),
        ]
        # its limit may be held: it is claimed beside the others, and may wait
        enqueue(conn, "free.limited", {"key": "a"})
        retried = enqueue(conn, "free.retried")

        def starts() -> dict[int, list[float]]:
            found: dict[int, list[float]] = {}
            for entry in self.workers.ledger():
                found.setdefault(entry.job, []).append(entry.at)
            return found

        wait_for(
            lambda: (
                jobs
                and set(jobs) <= starts().keys()
                and len(starts().get(retried, ())) == 2
            ),
            what=f"of {jobs} and {retried} started {starts().keys() & {*jobs, retried}}",
        )
        found = starts()
        assert [len(found[job]) for job in jobs] == [1] * len(jobs), (
            "a job started twice"
        )
        return max(at - began for job in jobs for at in found[job])

    def enqueue_rivals(self) -> None:
        """Enqueue jobs that want what is held. They may wait."""
        conn = self.database.conn
        enqueue(
            conn, "held.limited", {"key": "a"}, delay=0.1
        )  # else it is parked at once
        enqueue(conn, "held.plain", ordering_key="held-order")
        enqueue(conn, "held.plain", queue="held")
        enqueue(conn, "held.dependent")

    def waits(self) -> set[tuple[str, str]]:
        """Return the statements that wait for a lock, with those that they wait for."""
        found: LiteralString = (
            "select a.query, b.query from pg_stat_activity a,"
            " unnest(pg_blocking_pids(a.pid)) as w(pid) join pg_stat_activity b on b.pid = w.pid"
            " where a.wait_event_type = 'Lock'"
        )
        return {
            (waits[:300], holds[:120]) for waits, holds in self.database.rows(found)
        }

    def beats(self) -> None:
        """Wait until the heartbeat of the running worker was heard."""
        heard: LiteralString = (
            "select bool_and(seen_at > %s::timestamptz) from redrive.workers"
            " where lost_at is null and not is_closed and name not in ('me', 'other', 'held')"
        )
        now = self.database.value("select clock_timestamp()")
        wait_for(lambda: self.database.value(heard, now), what="the heartbeat stopped")

    def ends(self) -> None:
        """Start another worker, and stop it: it registers, works and leaves meanwhile."""
        worker = self.workers(handlers=HANDLERS, **SETTINGS)
        waits: set[tuple[str, str]] = set()

        def is_ready() -> bool:
            waits.update(self.waits())
            return worker.get("/readyz")[0] == 200

        try:
            wait_for(is_ready)
        except AssertionError:
            raise AssertionError(f"a new worker waits: {sorted(waits)}") from None
        status, _ = worker.stop()
        assert status == 0, worker.log.read_text()[-2000:]


def together(world: World) -> Iterator[set[str]]:
    """Make as many calls as can follow each other in one transaction, then the rest in others.

    Quicker than `rounds`: all that operators do locks the audit log. Each transaction ends when the
    next one is asked for.
    """
    left = set(RECIPES)
    while left:
        held = set[str]()
        session = world.database.session(idle_in_transaction_session_timeout="10min")
        with session.conn.transaction(force_rollback=True):
            for name in sorted(left):
                with (
                    contextlib.suppress(psycopg.DatabaseError),
                    session.conn.transaction(),
                ):
                    session.conn.execute(RECIPES[name], world.objects)
                    held.add(name)
            assert held, f"these calls are refused: {left}"
            yield held
        session.conn.close()
        left -= held


def rounds(world: World) -> Iterator[list[Hold]]:
    """Hold as many calls at once as lock something beside each other, then the rest.

    A call that locks nothing even when it comes first is not held. The holds end when the next ones
    are asked for.
    """
    yield []
    left = list(RECIPES)
    while left:
        tried = [(name, world.call(name)) for name in left]
        holds = [hold for _, hold in tried if hold is not None]
        try:
            yield holds
        finally:
            for hold in holds:
                hold.session.conn.close()
        left = [name for name, hold in tried[1:] if hold is None]


def measured(world: World, seconds: float) -> Iterator[tuple[list[Hold], float]]:
    """Hold all calls, each for so many seconds; yield them with the longest wait of other jobs."""
    for holds in rounds(world):
        until, longest = time.monotonic() + seconds, 0.0
        while time.monotonic() < until:
            longest = max(longest, world.probe())
        world.beats()
        world.ends()
        yield holds, longest


def main() -> int:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hold", type=float, default=30.0, help="seconds")
    hold = options.parse_args().hold
    print(
        "| function | held, s | longest wait of other jobs, s | it has locked rows of |"
    )
    print("|---|---:|---:|---|")
    with (
        embedded(18) as server,
        server.database() as database,
        tempfile.TemporaryDirectory() as home,
        workers_on(database.url, Path(home)) as workers,
    ):
        world = World(database, workers)
        world.prepare()
        for holds, longest in measured(world, hold):
            for name, tables in [(one.name, one.tables) for one in holds] or [
                ("(nothing)", [])
            ]:
                print(
                    f"| {name} | {hold:g} | {longest:.2f} | {', '.join(tables)} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a table refuses from any writer: no verb relies on the one before it."""

from typing import Any, LiteralString

import psycopg
import pytest

from tests.factories import make_campaign, make_dead_letter, make_job
from tests.postgres import Database

LONG = "x" * 256
LONGER = "x" * 2001
EMPTY_OR_LONG = ("", LONG)
EMPTY_OR_LONGER = ("", LONGER)
NAMES = ("", "-a", "a b", "1a", "a" * 64)
AUDIT: LiteralString = "audit (actor, action, why, n) values"
CAMPAIGN: LiteralString = "campaigns set"
EDIT: LiteralString = "edits (job, n, redrives, actor, why, patch, paths, payload)"
HEAL: LiteralString = "heals (kind, version, canaries, max_rate) values"
KIND_OBJECTIVE: LiteralString = "kind_objectives values"
OWNER: LiteralString = "owners values"
OBJECTIVE: LiteralString = "objectives values"
PROPOSAL: LiteralString = "proposals (action, proposed_by, why, detail) values"

REFUSED: dict[str, tuple[LiteralString, *tuple[Any, ...]]] = {
    "approvals_kind_check": ("approvals (kind) values (%s)", *NAMES),
    "agent_budgets_token_check": ("agent_budgets (token) values (%s)", *EMPTY_OR_LONG),
    "audit_actor_check": (AUDIT + " (%s, 'x', 'x', 1)", *EMPTY_OR_LONG),
    "audit_chain_one_check": ("audit_chain set one = %s", False),
    "audit_why_said": (AUDIT + " ('x', 'x', %s, 1)", " \n\t"),
    "audit_why_check": (AUDIT + " ('x', 'x', %s, 1)", *EMPTY_OR_LONGER),
    "used_links_link_check": ("used_links (link) values (%s)", *("", "x" * 65)),
    "batches_outcome_check": ("batches (close_by, outcome) values (now(), %s)", "open"),
    "breakers_name_check": ("breakers (name) values (%s)", *NAMES),
    "breakers_state_check": ("breakers (name, state) values ('b', %s)", "shut"),
    "campaigns_abort_share_check": (CAMPAIGN + " abort_share = %s", 0, 1.01),
    "campaigns_actor_check": (CAMPAIGN + " actor = %s", *EMPTY_OR_LONG),
    "campaigns_canaries_check": (CAMPAIGN + " canaries = %s", -1),
    "campaigns_rate_check": (CAMPAIGN + " rate = %s", 0, -1),
    "campaigns_state_check": (CAMPAIGN + " state = %s", "open"),
    "campaigns_why_check": (CAMPAIGN + " why = %s", *EMPTY_OR_LONGER),
    "contact_one_check": ("contact set one = %s", False),
    "dead_letters_outcome_check": ("dead_letters set outcome = %s", "dead"),
    "dead_letters_state_check": ("dead_letters set state = %s", "closed"),
    "edits_actor_check": (
        EDIT + " values (1, 1, 0, %s, 'x', '[]', '{}', '{}')",
        *EMPTY_OR_LONG,
    ),
    "edits_why_check": (
        EDIT + " values (1, 1, 0, 'x', %s, '[]', '{}', '{}')",
        *EMPTY_OR_LONGER,
    ),
    "effects_key_check": ("effects (key) values (%s)", *EMPTY_OR_LONG),
    "ended_sessions_session_check": ("ended_sessions values (%s)", *("", "x" * 65)),
    "epoch_is_known_check": ("epoch set is_known = %s", False),
    "heals_canaries_check": (HEAL + " ('k', '1', %s, 1)", 0, 1001),
    "heals_kind_check": (HEAL + " (%s, '1', 1, 1)", *NAMES),
    "heals_max_rate_check": (HEAL + " ('k', '1', 1, %s)", 0),
    "heals_version_check": (HEAL + " ('k', %s, 1, 1)", *EMPTY_OR_LONG),
    "held_groups_actor_check": (
        "held_groups (fingerprint, actor, why) values ('f', %s, 'x')",
        *EMPTY_OR_LONG,
    ),
    "held_groups_why_check": (
        "held_groups (fingerprint, actor, why) values ('f', 'x', %s)",
        *EMPTY_OR_LONGER,
    ),
    "history_queues_days_check": ("history_queues values ('q', %s)", 0, 401),
    "history_queues_queue_check": ("history_queues values (%s, 1)", *NAMES),
    "imports_source_check": (
        "imports (source, source_id) values (%s, 'x')",
        *EMPTY_OR_LONG,
    ),
    "imports_source_id_check": (
        "imports (source, source_id) values ('x', %s)",
        *EMPTY_OR_LONG,
    ),
    "kind_objectives_kind_check": (
        KIND_OBJECTIVE + " ('q', %s, 'dlq_added_5m', 1)",
        *NAMES,
    ),
    "kind_objectives_objective_check": (
        KIND_OBJECTIVE + " ('q', 'k', %s, 1)",
        *("dead_ratio", "dlq_unacknowledged_age_seconds"),
    ),
    "kind_objectives_queue_check": (
        KIND_OBJECTIVE + " (%s, 'k', 'dlq_added_5m', 1)",
        *NAMES[1:],
    ),
    "kind_objectives_value_check": (
        KIND_OBJECTIVE + " ('q', 'k', 'dlq_added_5m', %s)",
        *(-1, "Infinity", "NaN"),
    ),
    "kind_redrives_rate_check": (
        "kind_redrives (kind, rate) values ('k', %s)",
        *(0, -1),
    ),
    "limits_check": ("limits (name, rate) values ('l', %s)", None),
    "limits_concurrency_check": (
        "limits (name, concurrency) values ('l', %s)",
        *(-1, 1_000_001),
    ),
    "limits_name_check": ("limits (name, concurrency) values (%s, 1)", *EMPTY_OR_LONG),
    "limits_rate_check": ("limits (name, rate) values ('l', %s)", 0),
    "name_limits_at_most_check": ("name_limits set at_most = %s", 0, 1_000_001),
    "name_limits_what_check": ("name_limits values (%s, 1)", "lanes"),
    "objectives_objective_check": (OBJECTIVE + " ('q', %s, 1)", "dlq_added"),
    "objectives_queue_check": (OBJECTIVE + " (%s, 'dead_ratio', 1)", *NAMES),
    "objectives_value_check": (
        OBJECTIVE + " ('q', 'dead_ratio', %s)",
        -1,
        "Infinity",
        "NaN",
    ),
    "owners_contact_check": (OWNER + " ('q', '*', 'a', %s)", *EMPTY_OR_LONG),
    "owners_kind_check": (OWNER + " ('q', %s, 'a')", *NAMES),
    "owners_owner_check": (
        OWNER + " ('q', '*', %s)",
        *("", "two words", "-a", "x" * 64, '"'),
    ),
    "owners_queue_check": (OWNER + " (%s, '*', 'a')", *NAMES),
    "progress_share_check": (
        "progress (job, deliveries, share, detail) values (1, 1, %s, '{}')",
        *(-0.1, 1.1),
    ),
    "queue_series_span_check": (
        "queue_series (span, at, queue, minutes, backlog, running, workers) values (%s, now(), 'q', 1, 0, 0, 0)",
        *(0, 2),
    ),
    "proposals_action_check": (PROPOSAL + " (%s, 'x', 'x', '{}')", "redrive"),
    "proposals_detail_check": (
        PROPOSAL + " ('edit', 'x', 'x', to_jsonb(%s::text))",
        "x" * 65536,
    ),
    "proposals_proposed_by_check": (
        PROPOSAL + " ('edit', %s, 'x', '{}')",
        *EMPTY_OR_LONG,
    ),
    "proposals_state_check": ("proposals set state = %s", "done"),
    "proposals_why_check": (PROPOSAL + " ('edit', 'x', %s, '{}')", *EMPTY_OR_LONGER),
    "queues_lanes_check": ("queues (queue, lanes) values ('q', %s)", 0, 257),
    "queues_queue_check": ("queues (queue) values (%s)", *NAMES),
    "results_outcome_check": (
        "results (job, deliveries, outcome, keep_until) values (1, 1, %s, now())",
        "dead",
    ),
    "retention_keep_check": ("retention set keep = %s", "59 minutes"),
    "retention_what_check": ("retention values (%s, '1 d')", "jobs"),
    "schedule_declarations_catch_up": (
        (
            "schedule_declarations (schedule, kind, queue, cron, tz, catch_up, payload, digest)"
            " values ('s', 'k', 'q', '* * * * *', 'UTC', %s, '{}', '')"
        ),
        "none",
    ),
    "series_span_check": (
        "series (span, at, queue, kind) values (%s, now(), 'q', 'k')",
        *(0, 2),
    ),
    "snapshots_one_check": ("snapshots set one = %s", False),
}
"""For each constraint what is inserted or updated, and values that it must refuse."""


def test_a_table_refuses_what_no_verb_should_write(database: Database) -> None:
    make_dead_letter(database.conn)
    make_campaign(database.conn)
    database.rows(
        "select redrive.propose_v1('mute', 'claude', 'ada', 'why', '{\"seconds\": 60}')"
    )
    for constraint, (written, *values) in REFUSED.items():
        verb = "update" if " set " in written else "insert into"
        statement = f"{verb} redrive.{written}"
        for value in values:
            with pytest.raises(psycopg.errors.CheckViolation) as refused:
                database.rows(statement, value)  # type: ignore[arg-type]
            assert refused.value.diag.constraint_name == constraint

    assert set(REFUSED) == set(
        database.column(
            "select conname::text from pg_constraint where contype = 'c'"
            # tests/console/test_hostile_values.py writes the shapes of JSON
            " and connamespace = 'redrive'::regnamespace and conname !~ '_shape$'"
        )
    )


TWICE: dict[str, LiteralString] = {
    "jobs_idempotency_idx": "insert into redrive.jobs (kind, idempotency_key)"
    " select kind, idempotency_key from redrive.jobs",
    "dead_letters_open_idx": "insert into redrive.dead_letters"
    " select (jsonb_populate_record(d, '{\"redrives\": 7}')).* from redrive.dead_letters d",
    "imports_job_idx": "insert into redrive.imports (source, source_id, job)"
    " values ('s', '1', 1), ('s', '2', 1)",
}


def test_there_are_no_two_of_what_there_is_one_of(database: Database) -> None:
    make_dead_letter(database.conn)
    make_job(database.conn, idempotency_key="k")
    for index, statement in TWICE.items():
        with pytest.raises(psycopg.errors.UniqueViolation) as refused:
            database.rows(statement)
        assert refused.value.diag.constraint_name == index
    database.rows(
        "insert into redrive.dead_letters select"
        ' (jsonb_populate_record(d, \'{"redrives": 7, "state": "redriven"}\')).*'
        " from redrive.dead_letters d"
    )

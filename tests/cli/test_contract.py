"""The commands, JSON shapes and exit codes that others build on."""

import json
from typing import Any

import pytest

from redrive.cli.support.connection import only_one
from redrive.settings import load as load_settings
from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import failure, make_job, make_jobs, make_worker, settle_next
from tests.postgres import Database

LISTED = {
    "id",
    "time_to_dlq_seconds",
    "kind",
    "queue",
    "state",
    "reason",
    "category",
    "error_class",
    "message",
    "attempts",
    "deliveries",
    "redrives",
    "created_at",
    "died_at",
    "group",
    "owner",
    "quarantined",
    "acknowledged_at",
    "acknowledged_by",
}


def let_die(
    database: Database,
    kind: str = "mail",
    reason: str = "attempts_exhausted",
    **fields: Any,
) -> int:
    """A job that has died."""
    job = make_job(database.conn, kind, **fields)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "dead", reason=reason, failure=failure())
    return job


def test_enqueue_prints_the_id_and_says_what_a_key_that_is_taken_means(
    redrive: Redrive,
) -> None:
    first = redrive("enqueue", "mail", '{"to": "a"}', "--key", "k", "--json")
    second = redrive("enqueue", "mail", "--key", "k")

    assert first.json["created"] is True
    assert second.out.strip() == str(first.json["id"])
    assert "not new" in second.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Bad Kind",), "kind: must match"),
        (("mail", "[1]"), "payload: must be an object, not list"),
        (("mail", '{"a": '), "payload: is not valid JSON"),
        (("mail", '{"a": "\\u0000"}'), "payload.a: contains the character NUL"),
        (("mail", "--priority", "5000"), "priority: must lie between"),
    ],
)
def test_a_job_that_cannot_be_held_is_refused_in_one_line(
    redrive: Redrive, arguments: tuple[str, ...], said: str
) -> None:
    done = redrive("enqueue", *arguments)

    assert (done.code, done.out) == (64, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_lines_are_enqueued_and_a_bad_one_is_named_with_its_chunk_left_out(
    redrive: Redrive, database: Database
) -> None:
    good = redrive(
        "enqueue",
        "-",
        stdin='{"kind": "mail", "payload": {"n": 1}}\n\n{"kind": "mail", "queue": "slow"}\n',
    )
    bad = redrive(
        "enqueue",
        "-",
        stdin='{"kind": "mail"}\n{"kind": "mail", "payload": {"a": {"b": 1e999}}}\n',
    )
    unknown = redrive("enqueue", "-", stdin='{"kind": "mail", "urgency": 1}\n')

    assert (good.code, good.out.strip()) == (0, "2 enqueued")
    assert (bad.code, unknown.code) == (64, 64)
    assert "line 2" in bad.err
    assert "line 1.urgency" in unknown.err
    assert database.value("select count(*) from redrive.jobs") == 2


def test_queue_ls_shows_every_state(redrive: Redrive, database: Database) -> None:
    let_die(database, queue="slow")
    make_job(database.conn)

    found = {line["queue"]: line for line in redrive("queue", "ls", "--json").lines}

    assert found["default"].keys() == {
        "queue",
        "ready",
        "scheduled",
        "retrying",
        "running",
        "dead",
        "paused",
        "oldest_ready_seconds",
        "fair_by",
        "unhandled",
        "owner",
        "limited",
        "why",
    }
    assert (
        found["default"]["ready"],
        found["slow"]["dead"],
        found["slow"]["paused"],
    ) == (1, 1, False)


def test_a_kind_that_no_worker_handles_is_told_with_what_they_do_handle(
    redrive: Redrive, database: Database
) -> None:
    worker = store.Registration("w", "1.0", 30.0, ["mail.*", "invoice.charge"], None)
    store.register(database.conn, worker)
    make_jobs(database.conn, 3, "report")
    told = (
        "default: 3 due jobs of report, and no live worker handles this kind; workers here handle:"
        " invoice.charge, mail.*"
    )

    listed, checked = redrive("queue", "ls"), redrive("check", "--json")
    (queue,) = redrive("queue", "ls", "--json").lines

    assert listed.out.splitlines()[-1] == told
    assert queue["unhandled"] == {"report": 3}
    assert checked.code == 1
    assert {"check": "kinds", "ok": False, "text": told} in checked.lines


def test_a_queue_is_set_fair_with_a_why(redrive: Redrive, database: Database) -> None:
    for faulty in (("--fair-by", "tenant", "--yes"), ("--fair-by", "nobody"), ()):
        assert redrive("queue", "set", "mail", "--create", *faulty).code == 64
    for fair_by, lanes in (("tenant", 16), ("none", 1)):
        loud = ("--fair-by", fair_by, "--why", "loud", "--yes")
        assert redrive("queue", "set", "mail", "--create", *loud).code == 0
        assert database.rows("select queue, lanes from redrive.queues") == [
            ("mail", lanes)
        ]
        (listed,) = redrive("queue", "ls", "--json").lines
        assert listed["fair_by"] == (fair_by if fair_by == "tenant" else None)
        assert ("tenant" in redrive("queue", "ls").out) == (fair_by == "tenant")

    assert (
        database.rows("select actor, action, why from redrive.audit")
        == [("tester", "set lanes", "loud")] * 2
    )


def test_a_queue_is_set_paused_with_a_why(redrive: Redrive, database: Database) -> None:
    """As --fair-by, and both at once."""
    both = ("--paused", "--fair-by", "tenant")
    made = redrive("queue", "set", "mail", "--create", *both, "--why", "loud", "--yes")
    assert made.code == 0
    (listed,) = redrive("queue", "ls", "--json").lines
    assert (listed["paused"], listed["fair_by"], listed["why"]["code"]) == (
        True,
        "tenant",
        "queue_paused",
    )
    assert (
        redrive("queue", "set", "mail", "--no-paused", "--why", "done", "--yes").code
        == 0
    )
    (listed,) = redrive("queue", "ls", "--json").lines
    assert listed["paused"] is False
    assert redrive("queue", "resume", "mail", "--why", "done", "--yes").code == 2
    assert database.column("select action from redrive.audit order by id") == [
        "set lanes",
        "pause",
        "resume",
    ]


def test_several_settings_of_a_queue_are_made_together_or_not_at_all(
    redrive: Redrive, database: Database
) -> None:
    database.rows("drop function redrive.set_history_v1(text, int, text, text)")
    both = ("--fair-by", "tenant", "--history", "7d")

    refused = redrive("queue", "set", "mail", "--create", *both, "--why", "x", "--yes")

    assert refused.code != 0
    assert "is set" not in refused.out
    assert database.value("select count(*) from redrive.audit") == 0


def test_a_dead_letter_is_assigned_with_a_why(
    redrive: Redrive, database: Database
) -> None:
    job = str(let_die(database))
    assign = ("dlq", "assign", job, "--owner")
    refused = redrive(*assign, "bo", "--yes")
    assigned = redrive(*assign, "bo", "--why", "she knows the bank", "--yes", "--json")
    partly = redrive(
        "dlq", "assign", job, "999", "--owner", "bo", "--why", "x", "--yes"
    )

    assert (refused.code, redrive(*assign, "b" * 256, "--why", "x").code) == (64, 64)
    assert assigned.json == {"matched": 1, "assigned": [int(job)], "owner": "bo"}
    assert (partly.code, partly.err) == (
        0,
        (
            "redrive: job 999 has no open dead letter; "
            "redrive job show 999 shows what happened to it\n"
        ),
    )
    assert redrive("dlq", "ls", "--json").json["owner"] == "bo"
    assert "owner bo" in redrive("dlq", "show", job).out
    assert "bo" in redrive("dlq", "ls").out
    assert (
        redrive(*assign, "", "--why", "x", "--yes").out
        == "1 dead letter assigned to nobody\n"
    )
    assert redrive("dlq", "ls", "--json").json["owner"] is None
    assert (
        redrive("dlq", "assign", "999", "--owner", "bo", "--why", "x", "--yes").code
        == 2
    )


def test_dlq_ls_filters_and_shows_what_is_promised(
    redrive: Redrive, database: Database
) -> None:
    job = let_die(database, "mail", tenant="t")
    let_die(database, "charge", reason="gave_up", queue="slow")

    everything = redrive("dlq", "ls", "--json").lines
    assert {line["kind"] for line in everything} == {"mail", "charge"}
    assert everything[0].keys() == LISTED
    filters = {
        "--kind": "mail",
        "--id": str(job),
        "--queue": "default",
        "--reason": "attempts_exhausted",
        "--tenant": "t",
    }
    for flag, value in filters.items():
        assert [
            line["id"] for line in redrive("dlq", "ls", "--json", flag, value).lines
        ] == [job], flag
    assert (
        redrive("dlq", "ls", "--json", "--since", "1h", "--limit", "1").lines[0]["kind"]
        == "charge"
    )
    assert redrive("dlq", "ls", "--json", "--until", "1h").lines == []
    assert redrive("dlq", "ls", "--json", "--state", "dismissed").lines == []
    group = everything[0]["group"]
    assert len(redrive("dlq", "ls", "--json", "--group", group[:8]).lines) >= 1


def test_dlq_show_has_the_history_and_hides_secrets(
    redrive: Redrive, database: Database
) -> None:
    job = let_die(database, payload={"to": "a", "password": "hunter2"})

    found = redrive("dlq", "show", str(job), "--json").json

    assert found.keys() >= LISTED | {
        "payload",
        "failures",
        "notes",
        "lineage",
        "side_effects",
    }
    assert found["payload"] == {"to": "a", "password": "[redacted]"}
    assert len(found["failures"]) == 1
    shown = redrive("dlq", "show", str(job))
    assert shown.code == 0
    assert "no such invoice\n  app/jobs.py:3 in charge\n" in shown.out
    assert "hunter2" not in shown.out
    assert redrive("dlq", "show", "999").code == 2


def test_a_dry_run_changes_nothing_even_with_yes(
    redrive: Redrive, database: Database
) -> None:
    job = let_die(database)
    asked = ("dlq", "redrive", "--kind", "mail", "--yes", "--why", "mended", "--json")

    dry = redrive(*asked, "--dry-run")
    done = redrive(*asked)

    nothing = {"redriven": 0, "blocked": {}, "campaign": None, "state": None}
    assert dry.json == {"matched": 1} | nothing
    counts = {"matched": 1, "redriven": 1, "blocked": {}, "campaign": 1}
    assert done.json == counts | {"state": "running"}
    assert (
        database.value("select state from redrive.dead_letters where id = %s", job)
        == "redriven"
    )
    assert database.rows(
        "select actor, action, why, n from redrive.audit order by id"
    ) == [("tester", "redrive", "mended", 1)]


def test_a_redrive_takes_its_options_from_the_environment_too(
    redrive: Redrive, database: Database
) -> None:
    let_die(database, "mail")
    let_die(database, "charge")
    environment = {
        "REDRIVE_REDRIVE_KIND": "mail",
        "REDRIVE_REDRIVE_WHY": "back",
        "REDRIVE_REDRIVE_RATE": "5",
    }

    plan = redrive("dlq", "redrive", **environment)
    done = redrive(
        "dlq",
        "redrive",
        "--json",
        **environment,
        REDRIVE_REDRIVE_YES="true",
        REDRIVE_ACTOR="redrive-1",
    )

    assert (plan.code, "nothing was changed" in plan.out) == (0, True)
    assert done.json["redriven"] == 1
    assert (
        database.row("select actor, filter, rate from redrive.campaigns")[0]
        == "redrive-1"
    )


def test_what_would_repeat_a_success_stays_and_is_counted(
    redrive: Redrive, database: Database
) -> None:
    job = let_die(database, idempotency_key="k")
    database.rows(
        "insert into redrive.completions (kind, key, job) values ('mail', 'k', 99)"
    )

    done = redrive("dlq", "redrive", str(job), "--why", "x", "--yes", "--json")

    assert done.json["blocked"] == {"succeeded": 1}
    assert database.value("select state from redrive.dead_letters") == "open"


def test_a_redrive_of_everything_must_be_asked_for(
    redrive: Redrive, database: Database
) -> None:
    let_die(database)

    assert redrive("dlq", "redrive").code == 64
    assert redrive("dlq", "redrive", "--all").code == 0
    assert redrive("dlq", "redrive", "--why", "x", "--yes").code == 64
    assert redrive("dlq", "redrive", "--all", "--why", "x", "--yes").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlq", "redrive", "999", "--why", "x", "--yes"),
        ("dlq", "dismiss", "999", "--why", "x"),
        ("dlq", "note", "999", "text"),
        ("dlq", "show", "999"),
        ("dlq", "report", "nosuchgroup"),
    ],
    ids=" ".join,
)
def test_nothing_matched_where_something_had_to_is_2(
    redrive: Redrive, arguments: tuple[str, ...]
) -> None:
    assert redrive(*arguments).code == 2


def test_a_dismissed_and_a_noted_dead_letter_say_so(
    redrive: Redrive, database: Database
) -> None:
    job = let_die(database)

    note = ("dlq", "note", str(job), "the bank knows")
    assert "becomes a note" in redrive(*note, "--dry-run").out
    for empty in ("", " "):
        refused = redrive("dlq", "note", str(job), empty)
        assert (refused.code, "TEXT is missing" in refused.err) == (64, True)
    assert "at most 2000" in redrive("dlq", "note", str(job), 2001 * "x").err
    assert redrive("dlq", "show", str(job), "--json").json["notes"] == []
    assert redrive(*note).code == 0
    assert redrive("dlq", "dismiss", str(job), "--why", "won't fix").code == 0
    assert [
        n["text"] for n in redrive("dlq", "show", str(job), "--json").json["notes"]
    ] == ["the bank knows", "won't fix"]
    assert redrive("dlq", "ls", "--json").lines == []


def test_purge_counts_first_and_leaves_open_ones_alone(
    redrive: Redrive, database: Database
) -> None:
    gone, _ = let_die(database), let_die(database)
    redrive("dlq", "dismiss", str(gone), "--why", "x")

    assert redrive("purge", "--json", "--yes").json == {"matched": 0, "purged": 0}
    assert redrive("purge", "--older-than", "0d", "--json").json == {
        "matched": 1,
        "purged": 0,
    }
    assert redrive(
        "purge", "--older-than", "0d", "--json", REDRIVE_PURGE_YES="true"
    ).json == {"matched": 1, "purged": 1}
    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 1
    )


def test_a_lock_that_another_run_holds_is_75(
    redrive: Redrive, database: Database
) -> None:
    let_die(database)
    holder = database.session()
    holder.rows("begin")
    assert holder.value("select redrive.hold_run_v1('redrive')")

    done = redrive("dlq", "redrive", "--kind", "mail", "--why", "x", "--yes")

    assert (done.code, "another redrive holds the lock" in done.err) == (75, True)


def test_a_run_keeps_nothing_from_vacuum(database: Database) -> None:
    """Its lock had a snapshot, so vacuum removed no rows until a campaign was over."""
    held = "select backend_xmin from pg_stat_activity where application_name = 'redrive cli'"

    with only_one(load_settings(database_url=database.url), "redrive"):
        assert database.column(held) == [None]


def test_a_database_out_of_reach_is_69_in_one_line(redrive: Redrive) -> None:
    done = redrive(
        "queue", "ls", REDRIVE_DATABASE_URL="postgresql://user:hunter2@127.0.0.1:1/x"
    )

    assert done.code == 69
    assert len(done.err.splitlines()) == 1
    assert "hunter2" not in done.err


def test_objectives_are_set_where_they_differ(
    redrive: Redrive, database: Database
) -> None:
    wanted = json.dumps(
        {
            "payments": {"page_on_first_dead_letter": 1, "dead_ratio": 0.001},
            "*": {
                "dlq_added_5m": 20,
                "dlq_unacknowledged_age_seconds": 86400,
                "failed_ratio": 0.5,
            },
            "payments/charge": {"page_on_first_dead_letter": 1, "failed_ratio": 0.9},
        }
    )
    apply = ("objective", "apply", wanted, "--why", "as in values.yaml", "--yes")
    first, second = redrive(*apply), redrive(*apply)

    assert first.out.splitlines() == [
        "payments page_on_first_dead_letter is 1",
        "payments dead_ratio is 0.001",
        "payments/charge page_on_first_dead_letter is 1",
        "payments/charge failed_ratio is 0.9",
    ]
    assert (second.code, second.out) == (0, "nothing to do\n")
    held = {
        (row["queue"], row["kind"], row["objective"]): row["value"]
        for row in redrive("objective", "ls", "--json").lines
    }
    assert held["payments", None, "dead_ratio"] == 0.001
    assert held["payments", "charge", "page_on_first_dead_letter"] == 1
    back = ("payments/charge", "page_on_first_dead_letter", "default")
    redrive("objective", "set", *back, "--why", "as in values.yaml", "--yes")
    back = ("payments/charge", "failed_ratio", "default")
    redrive("objective", "set", *back, "--why", "as in values.yaml", "--yes")
    assert "payments/charge" not in redrive("objective", "ls").out
    assert (
        database.rows("select actor, why from redrive.audit")
        == [("tester", "as in values.yaml")] * 6
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("payments", "JSON must hold objectives by queue"),
        ('{"payments": {"dlq_added_5m": -1}}', "Expected `float` >= 0.0"),
        (
            '{"payments": {"dlq_added": 1}}',
            "objective is 'dlq_added'; it must be one of: dlq_added_5m,",
        ),
        ('{"1pay": {"dlq_added_5m": 1}}', "queue: must match"),
        ('{"pay/charge": {"dead_ratio": 1}}', "a kind cannot have dead_ratio; it must"),
        ('{"*/charge": {"dlq_added_5m": 1}}', "write QUEUE/charge"),
        ('{"pay": {}, "pay": {"dlq_added_5m": 1}}', "has the key 'pay' twice"),
    ],
)
def test_objectives_that_cannot_be_are_refused_whole(
    redrive: Redrive, text: str, said: str
) -> None:
    done = redrive("objective", "apply", text, "--why", "x")

    assert done.code == 64
    assert said in done.err


def test_retention_is_set_where_it_differs(
    redrive: Redrive, database: Database
) -> None:
    wanted = (
        "retention",
        "set",
        "audit=800d",
        "keys=12h",
        "names=90d",
        "--why",
        "the auditors",
    )
    wanted += ("--yes",)
    first, second = redrive(*wanted), redrive(*wanted)

    assert first.out.splitlines() == ["audit: kept for 800d", "keys: kept for 12h"]
    assert (second.code, second.out) == (0, "nothing to do\n")
    assert {"what": "keys", "seconds": 43_200.0} in redrive(
        "retention", "ls", "--json"
    ).lines
    assert "800d" in redrive("retention", "ls").out
    assert (
        database.rows("select actor, why from redrive.audit")
        == [("tester", "the auditors")] * 2
    )


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("dead_letters=1d", "what is 'dead_letters'; it must be one of: audit,"),
        ("audit=29d", "audit must be kept for at least 30d"),
        ("keys=soon", "'soon', which is not a duration"),
        ("keys", "for is missing; write 30d, or 12h"),
    ],
)
def test_retention_that_cannot_be_is_refused(
    redrive: Redrive, pair: str, said: str
) -> None:
    done = redrive("retention", "set", "names=1d", pair, "--why", "x")

    assert done.code == 64
    assert said in done.err
    assert {"what": "names", "seconds": 7_776_000.0} in redrive(
        "retention", "ls", "--json"
    ).lines


def test_a_schema_that_is_missing_or_too_new_is_78(
    redrive: Redrive, database: Database
) -> None:
    database.rows(
        "insert into redrive.migrations (version, name, serves)"
        " values (9999, 'later', 9999)"
    )
    assert redrive("queue", "ls").code == 78
    assert redrive("migrate").code == 78
    database.rows("update redrive.migrations set serves = 1 where version = 9999")
    assert "version 9999" in redrive("check").out
    database.rows("drop schema redrive cascade")
    assert redrive("queue", "ls").code == 78
    assert redrive("migrate").code == 0
    assert redrive("queue", "ls").code == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDRIVE_SLOTS", "many"),
        ("REDRIVE_HEARTBEAT_TTL", "-1"),
        ("REDRIVE_LOG_FORMAT", "xml"),
        ("REDRIVE_QUEUES", "A B"),
    ],
)
def test_a_bad_setting_is_64_and_names_itself(
    redrive: Redrive, name: str, value: str
) -> None:
    done = redrive("worker", "--handlers", "no.such:jobs", **{name: value})

    assert done.code == 64
    assert len(done.err.splitlines()) == 1
    assert name in done.err


def test_check_says_what_it_looked_at(redrive: Redrive) -> None:
    done = redrive("check", "--json")

    assert {line["check"] for line in done.lines} >= {
        "settings",
        "database",
        "schema",
        "roles",
        "clock",
        "bloat",
    }
    assert json.dumps(done.lines).count('"ok": false') == (1 if done.code else 0)


def test_check_names_publications_and_tables_that_they_would_stop(
    redrive: Redrive, database: Database
) -> None:
    """Check fails while no worker can settle anything."""
    database.rows("create publication everything for all tables")
    good = redrive("check")
    database.rows("alter table redrive.side_effects replica identity default")
    bad = redrive("check")

    said = "our tables are published by everything, and"
    assert f"ok   replication  {said} each has a replica identity\n" in good.out
    assert bad.code == 1
    assert (
        f"bad  replication  {said} these have no replica identity: redrive.side_effects;"
        in (bad.out)
    )

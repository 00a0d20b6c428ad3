"""redrive series: what people see, and the fields that programs get."""

import json
import re
from typing import Any

from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import make_job, make_jobs
from tests.postgres import Database
from tests.sql.test_series import let_pass, record

FIELDS = [
    "at",
    "queue",
    "kind",
    "enqueued",
    "completed",
    "failed",
    "retried",
    "died",
    "redriven",
    "duration_p50",
    "duration_p95",
    "wait_p95",
]


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def recorded(database: Database) -> None:
    """Record two minutes, an hour apart, with jobs of two queues."""
    conn = database.conn
    make_jobs(conn, 3, queue="mail")
    make_jobs(conn, 4, queue="bills", kind="invoice.send")
    measured = store.Measured("mail", "invoice.charge", [0, 9, *[0] * 15], [0] * 18)
    store.count_times(conn, [measured])
    record(conn)
    let_pass(conn, 60)
    make_job(conn, queue="mail")
    record(conn)


def test_json_has_exactly_the_fields_of_the_interface(
    redrive: Redrive, database: Database
) -> None:
    recorded(database)
    found = lines(redrive("series", "--json").out)

    assert [list(line) for line in found] == [FIELDS] * 3
    first = found[1]
    assert (first["queue"], first["kind"], first["enqueued"]) == (
        "mail",
        "invoice.charge",
        3,
    )
    assert first["at"].endswith(":00Z")
    assert 0.005 < first["duration_p50"] < first["duration_p95"] <= 0.01
    assert [line["enqueued"] for line in found] == [4, 3, 1]


def test_options_select_queue_kind_and_time(
    redrive: Redrive, database: Database
) -> None:
    recorded(database)

    def enqueued(*options: str) -> list[int]:
        out = redrive("series", "--json", *options).out
        return [line["enqueued"] for line in lines(out)]

    assert enqueued("--queue", "mail") == [3, 1]
    assert enqueued("--kind", "invoice.send") == [4]
    assert enqueued("--since", "30m") == [1]
    assert sum(enqueued("--since", "3d")) == 8, "by hour"


def test_people_see_steps_that_fit_and_what_was_not_recorded(
    redrive: Redrive, database: Database
) -> None:
    recorded(database)
    out = redrive("series", COLUMNS="160").out

    assert re.search(r"\([56]0 min gap\)", out), "in steps of ten minutes"
    assert len(out.splitlines()) < 40
    assert "7.5 ms" in out
    assert "backlog" in out
    assert "backlog" not in redrive("series", "--kind", "invoice.send").out


def test_a_narrow_screen_gets_fewer_columns_and_none_is_cut(
    redrive: Redrive, database: Database
) -> None:
    recorded(database)
    out = redrive("series", COLUMNS="80").out

    assert "\u2026" not in out
    assert "retried" not in out
    assert "died" in out


def test_without_a_record_it_says_who_records(redrive: Redrive) -> None:
    assert "a worker or the exporter records each minute" in redrive("series").out
    assert redrive("series", "--json").out == ""


def test_marks_are_listed_with_the_line_of_the_audit_log(
    redrive: Redrive, database: Database
) -> None:
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")

    shown = redrive("series", "--marks").out
    (mark,) = lines(redrive("series", "--marks", "--json").out)
    assert "ada paused queue mail" in shown
    assert mark["text"] == "ada paused queue mail"
    assert (mark["what"], mark["line"], mark["queues"]) == ("pause", 1, ["mail"])
    assert redrive("series", "--marks", "--queue", "bills").out == "nothing changed\n"


def test_an_unknown_queue_or_kind_is_told_with_the_one_that_was_meant(
    redrive: Redrive, database: Database
) -> None:
    recorded(database)

    for options in ((), ("--json",), ("--marks",)):
        done = redrive("series", "--queue", "mails", *options)
        assert done.code == 0
        assert done.err == (
            "redrive: no job has been in a queue 'mails' yet; did you mean mail?\n"
        )
    done = redrive("series", "--kind", "invoice.chrge")
    assert "did you mean invoice.charge?" in done.err
    assert redrive("series", "--queue", "mail").err == ""

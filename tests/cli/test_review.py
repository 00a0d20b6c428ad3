"""dlq report --since: the review of everything, printed and posted."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Redrive
from tests.factories import (
    claim_one,
    failure,
    let_next_die,
    make_job,
    make_worker,
    settle,
)
from tests.postgres import Database

CANARY = "Zx9-canary"
OLD, NEW = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def _die(database: Database, fingerprint: str, days_ago: int = 0, **more: Any) -> int:
    conn = database.conn
    job = make_job(conn, "invoice.charge", {"password": CANARY})
    worker = make_worker(conn)
    record = failure(fingerprint=fingerprint, message=f"no {CANARY} `|<b>", **more)
    let_next_die(conn, worker, failure=record)
    conn.execute(
        "update redrive.dead_letters set died_at = died_at - %s * interval '1 day',"
        " created_at = created_at - %s * interval '1 day' - interval '200 min'"
        " where id = %s",
        (days_ago, days_ago, job),
    )
    return job


@pytest.fixture
def week(database: Database) -> int:
    """A known group that grew, a new group, and an owner. Returns the oldest job."""
    oldest = _die(database, OLD, 10, category="transient")
    conn = database.conn
    # what fold_groups had stored when that one died
    conn.execute("update redrive.group_deltas set at = at - interval '10 days'")
    for _ in range(3):
        _die(database, OLD, category="transient")
    _die(database, NEW, category="bug")
    conn.execute(
        "select redrive.set_owner_v1('*', 'invoice.charge', 'team-billing', null, 'ada', 'w')"
    )
    return oldest


def test_the_review_says_what_is_open_new_growing_old_and_whose(
    week: int, redrive: Redrive
):
    """Nobody could see a week's dead letters at once; `report` was of one group."""
    found = redrive("dlq", "report", "--since", "7d", "--json").json

    assert (found["new"], found["before"], found["is_more"]) == (4, 1, False)
    assert [(o["owner"], o["open"]) for o in found["owners"]] == [("team-billing", 5)]
    assert [
        (g["group"], g["owner"], g["is_new"], g["open"], g["new"], g["before"])
        for g in found["groups"]
    ] == [(OLD, "team-billing", False, 4, 3, 1), (NEW, "team-billing", True, 1, 1, 0)]
    assert found["oldest"][0]["id"] == week
    assert found["time_to_dlq"]["measured"] == 4
    assert found["time_to_dlq"]["median"] == pytest.approx(12_000, abs=600)

    shown = redrive("dlq", "report", "--since", "7d").out
    assert "- 5 open.\n- 4 new; 1 in the period before.\n- 1 new group.\n" in shown
    assert "Time to DLQ: median 3 h 20 min" in shown
    assert f"redrive dlq explain {NEW[:10]}" in shown
    assert f"redrive campaign plan --group {OLD[:10]}" in shown


def test_the_review_names_what_fails_before_any_of_it_dies(
    database: Database, redrive: Redrive
):
    """With retries of two days, the causes of a week may have no dead letter yet."""
    conn = database.conn
    worker = make_worker(conn)
    for _ in range(20):
        make_job(conn, "invoice.charge")
    for _ in range(20):
        fault = failure(fingerprint=NEW, message=CANARY, category="transient")
        job = claim_one(conn, worker)
        settle(conn, worker, job, "retry", delay=3600, failure=fault)

    found = redrive("dlq", "report", "--since", "7d", "--json").json
    shown = redrive("dlq", "report", "--since", "7d").out

    (group,) = found["groups"]
    assert (group["group"], group["failing"], group["open"]) == (NEW, 20, 0)
    assert group["queue"] == "default"
    (cause,) = found["failing"]
    assert (cause["group"], cause["failing"], cause["share"]) == (NEW, 20, 1)
    assert (
        "0 open.\n- 20 failing now; they are retried.\n- invoice.charge: 100%" in shown
    )
    assert "20 jobs are retried." in shown
    assert f"redrive dlq show {NEW[:10]}" in shown
    assert CANARY not in shown + str(found)


def test_a_limit_on_new_groups_is_said(database: Database, redrive: Redrive):
    """The report says `at least` if there are more new groups than it reads."""
    _die(database, OLD)
    database.conn.execute(
        "insert into redrive.group_deltas (fingerprint, kind, category, error_class,"
        " message, sample, added, opened)"
        " select 'group' || n, kind, category, error_class, message, sample, 1, 1"
        " from redrive.group_deltas, generate_series(1, 150) n"
    )

    shown = redrive("dlq", "report", "--since", "7d").out

    assert "at least 100 new groups." in shown


def test_the_review_says_how_redrives_went(
    week: int, database: Database, redrive: Redrive
):
    """The outcome of a week's redrives is one rate of success."""
    campaign = redrive("dlq", "redrive", str(week), "--why", "w", "--yes", "--json")
    database.conn.execute(
        "update redrive.campaigns set redriven = 5, succeeded = 3, dead_again = 1"
        " where id = %s",
        (campaign.json["campaign"],),
    )

    found = redrive("dlq", "report", "--since", "7d", "--json").json

    assert found["redrives"] == {
        "campaigns": 1,
        "redriven": 5,
        "succeeded": 3,
        "dead_again": 1,
        "cancelled": 0,
        "in_flight": 1,
        "success_rate": 0.75,
    }
    shown = redrive("dlq", "report", "--since", "7d").out
    assert (
        "5 redriven: 3 succeeded, 1 died again, 1 in flight, success rate 75%." in shown
    )


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_no_payload_and_no_message_is_in_a_review(
    week: int, database: Database, redrive: Redrive, flags: tuple[str, ...]
):
    """A review goes to a channel that more people read than the dead letters."""
    database.conn.execute(
        "update redrive.groups set error_class = 'Bad<b>`|\x1b' where true"
    )
    database.conn.execute(
        "update redrive.group_deltas set error_class = 'Bad<b>`|\x1b'"
    )
    found = redrive("dlq", "report", "--since", "7d", *flags).out

    assert OLD[:10] in found
    assert CANARY not in found
    assert "\x1b" not in found
    if not flags:
        assert "Bad<b>'/" in found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a group or --since, for example --since 7d"),
        (("f1", "--since", "7d"), "give a group or --since"),
        (("f1", "--post"), "these options need --since, and no group"),
        (("--since", "7d", "--post"), "REDRIVE_REPORT_WEBHOOK_URL is not set"),
    ],
)
def test_what_is_missing_for_a_report_is_named(
    redrive: Redrive, arguments: tuple[str, ...], says: str
):
    """A wrong use says what to give."""
    ran = redrive("dlq", "report", *arguments)

    assert ran.code == 64
    assert says in ran.err


@contextmanager
def _webhook(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """A Slack of our own; yields its URL and the bodies that came."""
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            bodies.append(json.loads(self.rfile.read(size)))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{CANARY}", bodies
        finally:
            server.shutdown()
            thread.join()


def test_a_cron_job_posts_the_review_to_a_webhook_from_a_file(
    week: int, redrive: Redrive, tmp_path: Path
):
    """The report comes by itself; its URL is a secret."""
    file = tmp_path / "url"
    with _webhook() as (url, bodies):
        file.write_text(f"{url}\n")
        ran = redrive(
            *("dlq", "report", "--since", "7d", "--post"),
            REDRIVE_REPORT_WEBHOOK_URL_FILE=str(file),
        )

    assert (ran.code, ran.out) == (0, "posted\n")
    (body,) = bodies
    assert body["text"].startswith("*Dead letters, the last 7 days*\n• 5 open.")
    assert "team-billing" in body["text"]
    assert CANARY not in body["text"]


@pytest.mark.parametrize("how", [("--post",), ()])
def test_a_cell_that_does_not_answer_is_named_in_the_report(
    week: int,
    database: Database,
    redrive: Redrive,
    tmp_path: Path,
    how: tuple[str, ...],
):
    """Readers of a channel did not see that a cell was missing from the report."""
    file = tmp_path / "cells.json"
    urls = {"eu": database.url, "us": "host=127.0.0.1 port=1"}
    file.write_text(json.dumps([{"name": n, "url": u} for n, u in urls.items()]))
    with _webhook() as (url, bodies):
        ran = redrive(
            *("dlq", "report", "--since", "7d", *how),
            REDRIVE_DATABASES=str(file),
            REDRIVE_REPORT_WEBHOOK_URL=url,
        )

    shown = bodies[0]["text"] if bodies else ran.out
    assert ran.code == 69
    assert "Dead letters in eu, the last 7 days" in shown
    assert "Dead letters in us*\n• The database did" in shown or (
        "# Dead letters in us\n\n- The database did not answer." in shown
    )


@pytest.mark.parametrize("status", [403, 302])
def test_a_webhook_that_refuses_is_an_error_without_its_url(
    redrive: Redrive, status: int
):
    """A redirect is not followed, and the URL is in no error."""
    with _webhook(status) as (url, _):
        ran = redrive(
            *("dlq", "report", "--since", "7d", "--post"),
            REDRIVE_REPORT_WEBHOOK_URL=url,
        )

    assert ran.code == 1
    assert ran.err == f"redrive: the webhook refused the report: HTTP {status}\n"


@pytest.mark.parametrize(
    "url",
    [
        f"http://ada:{CANARY}@127.0.0.1/hook",
        f"http://127.0.0.1:1/hook {CANARY}",
        f"http://127.0.0.1:1/hook/\u00fc{CANARY}",
    ],
)
def test_a_url_that_no_client_can_use_is_refused_by_name(redrive: Redrive, url: str):
    """No error quotes the password of the webhook's URL."""
    ran = redrive(
        *("dlq", "report", "--since", "7d", "--post"), REDRIVE_REPORT_WEBHOOK_URL=url
    )

    assert ran.code == 64
    assert "REDRIVE_REPORT_WEBHOOK_URL" in ran.err
    assert CANARY not in ran.err + ran.out


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b""])
def test_an_answer_that_is_not_http_is_an_error_of_one_line(
    redrive: Redrive, answer: bytes
):
    """Such an answer ends the report without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as peer:
                peer.recv(65_536)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        ran = redrive(
            *("dlq", "report", "--since", "7d", "--post"),
            REDRIVE_REPORT_WEBHOOK_URL=f"http://127.0.0.1:{server.getsockname()[1]}",
        )
        thread.join()

    assert ran.code == 1
    assert ran.err.startswith("redrive: the webhook cannot be reached: ")
    assert ran.err.count("\n") == 1


def test_a_dead_letter_says_how_long_after_its_enqueueing_it_died(
    week: int, database: Database, redrive: Redrive
):
    """A column of `dlq ls --wide`, a field, and a phrase of `dlq show`."""
    (found,) = redrive("dlq", "ls", "--id", str(week), "--json").lines
    wide = redrive("dlq", "ls", "--id", str(week), "--wide", COLUMNS="300").out

    assert found["time_to_dlq_seconds"] == pytest.approx(12_000, abs=600)
    assert "time to dlq" in wide
    assert "3 h 20 min" in wide
    assert "time to dlq" not in redrive("dlq", "ls", COLUMNS="300").out
    assert ", after 3 h 20 min: not_retryable" in redrive("dlq", "show", str(week)).out

    redrive("dlq", "redrive", str(week), "--why", "w", "--yes")
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    (again,) = redrive("dlq", "ls", "--id", str(week), "--json").lines

    assert again["time_to_dlq_seconds"] is None
    assert ", after" not in redrive("dlq", "show", str(week)).out

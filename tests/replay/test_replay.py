"""redrive job replay: the attempt as it was, and nothing else."""

import inspect
import json
import select
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redrive.extras.replay import replay
from redrive.extras.replay.bundle import Bundle
from redrive.extras.replay.scene import Request
from redrive.rules.attempts.failure import made_up
from redrive.rules.model import Category
from tests.cli.conftest import Ran, Redrive
from tests.factories import failure, let_next_die, make_job, make_worker
from tests.flow.harness import wait_for
from tests.postgres import Database
from tests.replay import apps

REPLAY = ("job", "replay", "--handlers", "tests.replay.apps:jobs")
TABLES = ("jobs", "dead_letters", "failures", "side_effects", "checkpoints", "audit")


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def died(
    database: Database,
    kind: str,
    payload: dict[str, Any],
    function: Callable[..., Any] | None = None,
    text: str = "return",
    error_class: str = "KeyError",
) -> int:
    """Make a dead letter that failed at this line. Returns its id."""
    frame = function and {
        "file": "/srv/apps.py",
        "module": "tests.replay.apps",
        "function": function.__name__,
        "line": line_of(function, text),
        "own": True,
    }
    known = failure(
        error_class=error_class,
        detail={"stack": [frame] if frame else []},
        fingerprint="f",
    )
    make_job(database.conn, kind, payload)
    worker = make_worker(database.conn)
    return let_next_die(database.conn, worker, failure=known)


def everything(database: Database) -> list[Any]:
    return [
        database.rows(f"select * from redrive.{table} order by 1") for table in TABLES
    ]


def replayed(redrive: Redrive, job: int | str, *options: str, **more: str) -> Ran:
    return redrive(*REPLAY, str(job), *options, **more)


def test_it_says_that_it_fails_at_the_same_line_and_changes_nothing(
    redrive: Redrive, database: Database
) -> None:
    job = died(database, "order.book", {"lines": [{}]}, apps.book)
    before = everything(database)

    shown = replayed(redrive, job)
    found = replayed(redrive, job, "--json")

    assert (shown.code, found.code) == (1, 1)
    assert "the same failure at the same line:" in shown.out
    assert 'return payload["lines"][0]["amount"]' in shown.out
    assert "booking" in shown.err
    assert (found.json["same_line"], found.json["place"]["function"]) == (True, "book")
    assert everything(database) == before


def test_another_line_or_failure_is_told_apart(
    redrive: Redrive, database: Database
) -> None:
    moved = died(database, "order.book", {"lines": [{}]}, apps.book, "print")
    other = died(database, "order.book", {"lines": []}, apps.book)

    assert replayed(redrive, moved, "--json").json["verdict"] == "moved"
    found = replayed(redrive, other)
    assert found.out.splitlines()[1] == "another failure:"
    place = f"/srv/apps.py:{line_of(apps.book, 'return')} in book"
    assert f"on record is: KeyError at {place}" in found.out


def test_a_handler_that_returns_ends_with_0(
    redrive: Redrive, database: Database
) -> None:
    job = died(database, "order.book", {"lines": [{"amount": 1}]}, apps.book)
    found = replayed(redrive, job)

    assert (found.code, "it did not fail: completed" in found.out) == (0, True)


def test_another_payload_can_be_tried(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    job = died(database, "order.book", {"lines": [{"amount": 1}]}, apps.book)
    file = tmp_path / "payload.json"
    file.write_text('{"lines": [{}]}')

    assert replayed(redrive, job, "--payload", str(file), "--json").json["same_line"]
    file.write_text("[]")
    refused = replayed(redrive, job, "--payload", str(file))
    assert (refused.code, "it must hold a JSON object" in refused.err) == (64, True)


def test_what_is_redacted_is_named_and_can_be_revealed(
    redrive: Redrive, database: Database
) -> None:
    job = died(database, "account.open", {"token": "0017"}, apps.open_account)
    hidden = replayed(redrive, job)
    shown = replayed(redrive, job, "--reveal", "--why", "no token is kept", "--yes")

    assert hidden.code == 1
    assert "redacted: payload.token; give values by --payload FILE" in hidden.out
    assert (shown.code, "it did not fail" in shown.out) == (0, True)
    assert database.rows("select action, why from redrive.audit") == [
        ("reveal", "no token is kept")
    ]


def test_a_bundle_needs_no_database(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    job = died(database, "order.book", {"lines": [{}]}, apps.book)
    file = tmp_path / "letter.json"
    file.write_text(redrive("dlq", "export", str(job)).out)
    nowhere = {"REDRIVE_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere"}

    found = redrive(*REPLAY, "--bundle", str(file), "--json", **nowhere)
    assert found.json["same_line"], found
    wrong = redrive(*REPLAY, str(job + 1), "--bundle", str(file), **nowhere)
    assert f"the bundle is of job {job}, not {job + 1}" in wrong.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "it must be what redrive dlq export prints"),
        ('{"bundle": 1}', "missing required field `id`"),
        ("", "it must be what redrive dlq export prints"),
        (None, "No such file"),
    ],
)
def test_what_is_no_bundle_is_refused(
    redrive: Redrive, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "letter.json"
    if content is not None:
        file.write_text(content)
    refused = redrive(*REPLAY, "--bundle", str(file))

    assert (refused.code, message in refused.err) == (64, True), refused.err


def test_a_newer_bundle_is_refused(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    job = died(database, "order.book", {}, apps.book)
    file = tmp_path / "letter.json"
    newer = redrive("dlq", "export", str(job)).json | {"bundle": 2}
    file.write_text(json.dumps(newer))
    refused = redrive(*REPLAY, "--bundle", str(file))

    assert "its version is 2; this program reads 1" in refused.err


def test_no_call_leaves_the_sandbox_unless_it_is_asked_for(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        payload = {"port": port, "file": "/dev/null"}
        job = died(database, "bank.call", payload, apps.call, "socket")
        refused = replayed(redrive, job)
        with pytest.raises(BlockingIOError):
            listening.accept()
        allowed = replayed(redrive, job, "--no-sandbox", "--json")
        listening.accept()[0].close()

    assert refused.code == 1
    place = f"tests/replay/apps.py:{line_of(apps.call, 'socket')} in call"
    assert (
        f"{place} tried to connect to localhost:{port}; replay refuses connections;"
        f" allow it with --allow localhost:{port}"
    ) in refused.out
    assert (allowed.code, allowed.json["outcome"]) == (0, "completed")


def test_a_refused_call_does_not_hide_the_same_failure(
    redrive: Redrive, database: Database
) -> None:
    job = died(database, "bank.swallowed", {}, apps.swallowed)
    found = replayed(redrive, job, "--json").json

    assert (found["same_line"], found["refused_calls"]) == (True, 1)


def test_a_call_that_is_found_beside_the_start_of_the_attempt_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine looked only when the attempt waited for its call, and counted none."""
    next_line = replay._Lines.next

    def late(self: replay._Lines, *limits: float) -> Any:
        fds = (self._process.channel, self._process._listener)
        wait_for(lambda: len(select.select(fds, [], [], 0)[0]) == len(fds))
        monkeypatch.undo()
        return next_line(self, *limits)

    now = datetime.now(UTC)
    letter = Bundle(1, 1, "bank.swallowed", "q", {}, 1, 1, now, now, "1-1/1")
    monkeypatch.setattr(replay._Lines, "next", late)
    found = replay.replay_confined(Request("tests.replay.apps:jobs", letter))

    assert found.targets == ["localhost:9"]


def test_a_process_that_dies_is_told(redrive: Redrive, database: Database) -> None:
    job = died(database, "bank.crash", {})
    found = replayed(redrive, job)

    assert found.code == 1
    assert "it did not end: its process died: exit status 3" in found.out


def test_a_signal_is_the_same_failure_without_a_line(
    redrive: Redrive, database: Database
) -> None:
    job = died(database, "bank.declined", {}, error_class="GiveUp")
    other = replayed(redrive, job, "--json").json
    same = made_up("GiveUp", "declined", Category.OTHER, "bank.declined").fingerprint
    database.rows("update redrive.failures set fingerprint = %s", same)
    found = replayed(redrive, job, "--json").json

    assert (other["error_class"], other["verdict"]) == ("GiveUp", "other")
    assert (found["verdict"], found["same_line"]) == ("same_failure", False)


@pytest.mark.parametrize("where", [(), ("--no-sandbox",)])
def test_the_debugger_stops_at_the_frame_that_raised(
    redrive: Redrive, database: Database, where: tuple[str, ...]
) -> None:
    job = died(database, "order.book", {"lines": [{}]}, apps.book)
    typed = "p 'the payload is', payload\nq\n"
    found = replayed(redrive, job, "--pdb", *where, stdin=typed)

    assert "('the payload is', {'lines': [{}]})" in found.out
    assert "the same failure at the same line" in found.out


def test_a_test_is_written_only_if_it_fails_for_the_same_reason(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "tests" / "test_it.py"
    token = {"token": "s3cr3t-t0ken", "lines": [{}]}
    same = died(database, "order.book", token, apps.book)
    fixed = died(database, "order.book", {"lines": [{"amount": 1}]}, apps.book)
    options = ("--pytest", str(file))

    refused = replayed(redrive, fixed, *options)
    assert (refused.code, file.exists()) == (1, False)
    assert "no test is written" in refused.err
    found = replayed(redrive, same, *options)
    assert (found.code, f"wrote {file}" in found.out) == (0, True)
    assert "s3cr3t" not in file.read_text()
    again = replayed(redrive, same, *options)
    assert (again.code, "exists; name another file" in again.err) == (64, True)


def test_a_test_is_written_when_lines_were_added_above_the_failure(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    moved = died(database, "order.book", {"lines": [{}]}, apps.book, "print")

    found = replayed(redrive, moved, "--pytest", str(file))

    assert (found.code, file.exists()) == (0, True), found
    assert "in the same function, at another line" in found.out


def test_no_test_is_written_from_a_bundle_with_secrets(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    payload = {"token": "s3cr3t-t0ken", "lines": [{}]}
    job = died(database, "order.book", payload, apps.book)
    reveal = ("--reveal", "--why", "so", "--yes")
    letter, file = tmp_path / "letter.json", tmp_path / "test_it.py"
    letter.write_text(redrive("dlq", "export", str(job), *reveal).out)

    refused = redrive(*REPLAY, "--bundle", str(letter), "--pytest", str(file))

    assert (refused.code, file.exists()) == (64, False)
    assert "export it again without --reveal" in refused.err
    assert "s3cr3t" not in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give the id of a job, or --bundle FILE"),
        (("1", "--pdb", "--json"), "--pdb goes without --json and --pytest"),
        (("1", "--reveal", "--why", "so", "--pytest"), "a test must not hold secrets"),
        (("1", "--why", "so"), "--why is for --reveal"),
        (("1", "--bundle", "x", "--reveal", "--why", "so"), "not a bundle"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    redrive: Redrive, options: tuple[str, ...], message: str
) -> None:
    refused = redrive(*REPLAY, *options)

    assert (refused.code, message in refused.err) == (64, True), refused.err


def test_what_cannot_be_replayed_is_said(redrive: Redrive, database: Database) -> None:
    job = died(database, "no.handler", {})
    unknown = replayed(redrive, job)
    missing = replayed(redrive, job + 1)
    module = redrive("job", "replay", str(job), "--handlers", "no.such:jobs")
    nothing = redrive("job", "replay", str(job))

    assert (unknown.code, "no.handler" in unknown.err) == (1, True), unknown.err
    assert missing.code == 2
    assert f"job {job + 1} has no dead letter" in missing.err
    assert (module.code, "No module named 'no'" in module.err) == (1, True), module.err
    assert (nothing.code, "--handlers MODULE:ATTRIBUTE" in nothing.err) == (64, True)

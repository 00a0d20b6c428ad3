"""Logs: what failed attempts and errors of ours say, to people and to machines, and how often."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from redrive.observability import logs
from redrive.observability.logs import ConsoleFormatter, JsonFormatter
from redrive.observability.metrics import Metrics
from redrive.observability.sampling import IN_FULL, MAX_SORTS, WINDOW_SECONDS, Sampler
from redrive.rules.attempts.failure import describe
from redrive.rules.attempts.settlement import Outcome
from redrive.worker.held import Batch, ClaimedJob, held_from
from redrive.worker.protocol import Report
from redrive.worker.round_trip import EPOCH, LaneClaim
from redrive.worker.telemetry import Telemetry

CANARY = "canary-5f1e2d9c"
OTHER = "of-the-environment-77"


class Connection:
    """A local that shows its password if it is printed."""

    def __repr__(self) -> str:
        return f"Connection(password={CANARY!r})"


def _raise() -> None:
    connection = Connection()
    try:
        raise OSError(f"cannot use {connection!r} of {OTHER}")
    except OSError as error:
        raise RuntimeError("no answer to password=" + CANARY) from error


@pytest.fixture
def raised() -> logging.LogRecord:
    record = logging.LogRecord(
        "redrive.x", logging.ERROR, "", 0, "a request failed", (), None
    )
    try:
        _raise()
    except RuntimeError:
        record.exc_info = sys.exc_info()
    return record


@pytest.mark.parametrize("formatter", [ConsoleFormatter, JsonFormatter])
def test_no_traceback_has_a_secret_of_a_message_or_of_a_local(
    raised: logging.LogRecord, formatter: type[ConsoleFormatter | JsonFormatter]
) -> None:
    """`exc_info` went out as Python prints it."""
    text = formatter({OTHER}).format(raised)

    assert "RuntimeError: no answer to password=[redacted]" in text
    assert (
        "because OSError: cannot use Connection(password=[redacted]) of [redacted]"
        in text
    )
    assert "in _raise" in text
    assert CANARY not in text
    assert OTHER not in text


def test_library_frames_are_dimmed_where_there_are_colours(
    raised: logging.LogRecord,
) -> None:
    assert raised.exc_info
    try:
        json.loads("{")
    except ValueError as error:
        raised.exc_info = (type(error), error, error.__traceback__)
    coloured = ConsoleFormatter(colours=True).format(raised).split("\n")
    plain = ConsoleFormatter().format(raised)

    assert [line[:4] for line in coloured if "/json/" in line] == ["\x1b[2m"] * 3
    assert [line[0] for line in coloured if "test_logs.py" in line] == [" "]
    assert "\x1b" not in plain


def test_a_message_of_several_lines_cannot_pass_for_lines_of_the_log() -> None:
    record = logging.LogRecord("redrive.x", logging.INFO, "", 0, "retried", (), None)
    record.failure = describe(
        ValueError("first\n12:00:00.000 error   forged"), "k"
    ).record()

    assert (
        ConsoleFormatter()
        .format(record)
        .endswith("ValueError: first\n    12:00:00.000 error   forged")
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "has_colours"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals_and_for_those_who_want_them(
    stream: io.StringIO,
    environment: dict[str, str],
    has_colours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    root = logging.getLogger("redrive")
    before = root.handlers[:], root.level, root.propagate
    try:
        logs.set_up("console", "info")
        logging.getLogger("redrive.x").warning("something")
    finally:
        root.handlers[:], root.propagate = before[0], before[2]
        root.setLevel(before[1])

    assert ("\x1b[" in stream.getvalue()) is has_colours


# ---------------------------------------------------------------------- storms


@pytest.fixture
def written() -> Iterator[list[logging.LogRecord]]:
    """What the log is given."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    root = logging.getLogger("redrive")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield found
    root.removeHandler(handler)
    root.setLevel(level)


def failed(job: int, message: str) -> tuple[ClaimedJob, Report]:
    row = (1, job, 1, 1, "mail.send", "{}", None, EPOCH, 0.0)
    (held,) = held_from(Batch(1, ["default"]), [LaneClaim(1, 1, EPOCH, 1, 1, 1)], [row])
    record = msgspec.json.encode(
        describe(ValueError(message), "mail.send").record()
    ).decode()
    return held, Report(job, 1, Outcome.RETRY, 2.0, failure=record, reason="other")


def test_of_a_storm_the_first_failures_of_each_sort_are_logged_and_the_rest_counted(
    written: list[logging.LogRecord],
) -> None:
    """10 k failures a second must cost the worker next to nothing."""
    telemetry = Telemetry(Metrics(), None)
    for job in range(1, 1001):
        telemetry.ended(*failed(job, "the first bug"))
    for job in range(2001, 2004):
        telemetry.ended(*failed(job, "the second bug"))
    lines = [r for r in written if r.getMessage() == "retried"]

    assert [r.job for r in lines] == [*range(1, IN_FULL + 1), 2001, 2002, 2003]
    written.clear()
    telemetry.end_log.say_held_back(float("inf"))
    (told,) = [json.loads(JsonFormatter().format(record)) for record in written]
    assert {
        name: told[name] for name in ("event", "kind", "ended", "error_class", "count")
    } == {
        "event": "more like it",
        "kind": "mail.send",
        "ended": "retried",
        "error_class": "ValueError",
        "count": 1000 - IN_FULL,
    }


def test_a_new_minute_begins_anew_and_what_was_held_back_is_told_once() -> None:
    sampler = Sampler[str]()
    first = [sampler.lets_through("a", 0.0) for _ in range(IN_FULL + 2)]

    assert first == [True] * IN_FULL + [False] * 2
    assert sampler.held_back(WINDOW_SECONDS - 1) == []
    assert sampler.held_back(WINDOW_SECONDS) == [("a", 2)]
    assert sampler.held_back(WINDOW_SECONDS) == []
    assert sampler.lets_through("a", WINDOW_SECONDS)


def test_a_storm_of_sorts_is_bounded_too() -> None:
    """A message that differs each time makes each failure a sort of its own."""
    sampler = Sampler[int]()
    let_through = sum(sampler.lets_through(sort, 0.0) for sort in range(10_000))

    assert let_through == MAX_SORTS
    assert sampler.held_back(float("inf")) == [(None, 10_000 - MAX_SORTS)]


def test_the_source_of_a_frame_is_scrubbed_and_may_be_missing(tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_text(
        "def run():\n    raise ValueError('x') if 'password=hunter2-in-code' else 0\n"
    )
    scope: dict[str, object] = {"__name__": "app"}
    exec(
        compile(source.read_text(), str(source), "exec"), scope
    )  # code with a name of its own
    record = logging.LogRecord("redrive.x", logging.INFO, "", 0, "retried", (), None)
    try:
        scope["run"]()  # type: ignore[operator]
    except ValueError as error:
        record.failure = describe(error, "k").record()
    text = ConsoleFormatter().format(record)
    source.unlink()

    assert "raise ValueError('x')" in text
    assert "hunter2-in-code" not in text
    assert "line 2, in run\nValueError: x" in ConsoleFormatter().format(record)

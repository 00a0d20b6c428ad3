"""What is asked at a terminal, and that nothing happens without the answer."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from tests.factories import (
    claim,
    complete,
    let_die,
    let_next_die,
    make_dead_letter,
    make_worker,
)
from tests.flow.harness import ROOT
from tests.postgres import Database


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._fd, theirs = pty.openpty()
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REDRIVE_")
        }
        ours = {"REDRIVE_DATABASE_URL": url, "REDRIVE_ACTOR": "ada"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=environment | ours | {"COLUMNS": "120", "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, pattern: str, seconds: float = 300) -> str:
        """Read until the pattern has been shown."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select(
                [self._fd], [], [], max(0.0, deadline - time.monotonic())
            )
            try:
                chunk = os.read(self._fd, 4096) if ready else b""
            except OSError:  # the other side has closed
                chunk = b""
            assert chunk, f"{pattern!r} was not shown in:\n{self.shown}"
            self.shown += chunk.decode(errors="replace")
        return self.shown

    def _reads(self) -> bool:
        """Read what is there within a moment. Returns whether something was."""
        if not select.select([self._fd], [], [], 0.05)[0]:
            return False
        try:
            chunk = os.read(self._fd, 4096)
        except OSError:  # the other side has closed
            return False
        self.shown += chunk.decode(errors="replace")
        return bool(chunk)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._fd, text.encode() + b"\r")

    def end(self, seconds: float = 300) -> int:
        """Read on to the end. Returns the exit code."""
        deadline = time.monotonic() + seconds
        has_ended = False
        while time.monotonic() < deadline:
            if self._reads():
                continue
            if has_ended:  # and all that it has written is read
                break
            has_ended = self.process.poll() is not None
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self._fd)


@pytest.fixture
def letters(database: Database) -> list[int]:
    return [make_dead_letter(database.conn) for _ in range(3)]


def test_a_redrive_shows_its_plan_asks_for_the_count_and_then_for_the_why(
    database: Database, letters: list[int]
):
    terminal = Terminal(database.url, "dlq", "redrive", "--kind", "invoice.charge")
    terminal.wait_for(r"3 open dead letters")
    terminal.wait_for(r"Type '3' to continue")
    terminal.type("3")
    terminal.wait_for(r"Why")
    terminal.type("the fix is out")
    code = terminal.end()

    assert code == 0, terminal.shown
    assert "3 dead letters redriven" in terminal.shown
    assert database.rows("select actor, why, n from redrive.audit") == [
        ("ada", "the fix is out", 3)
    ]
    assert database.value("select count(*) from redrive.jobs") == 3


@pytest.mark.parametrize("answer", ["repeat", "yes"])
def test_a_job_that_must_not_run_twice_asks_for_a_word_of_its_own(
    database: Database, letters: list[int], answer: str
):
    """Without the word, the redrive continues and leaves the job."""
    said = '{"invoice.charge": {"rate": null, "repeatable": false}}'
    database.rows("select redrive.declare_redrives_v1('{invoice.charge}', %s)", said)
    ids = [str(letters[0])]
    terminal = Terminal(database.url, "dlq", "redrive", *ids, "--why", "x")
    terminal.wait_for(r"1 will stay: its handler says")
    terminal.wait_for(r"must not run twice\? Type 'repeat' to continue")
    terminal.type(answer)
    terminal.wait_for(r"Type '1' to continue")
    terminal.type("1")

    assert terminal.end() == 0, terminal.shown
    redriven = int(answer == "repeat")
    assert database.value("select count(*) from redrive.jobs") == redriven


@pytest.mark.parametrize("answer", ["yes", "", "33"])
def test_anything_but_the_word_changes_nothing(
    database: Database, letters: list[int], answer: str
):
    terminal = Terminal(
        database.url, "dlq", "redrive", "--kind", "invoice.charge", "--why", "x"
    )
    terminal.wait_for(r"Type '3' to continue")
    terminal.type(answer)
    code = terminal.end()

    assert code == 0
    assert "nothing was changed" in terminal.shown
    assert database.value("select count(*) from redrive.jobs") == 0
    assert database.value("select count(*) from redrive.audit") == 0


def test_ctrl_c_at_the_question_changes_nothing(database: Database, letters: list[int]):
    terminal = Terminal(
        database.url, "dlq", "redrive", "--kind", "invoice.charge", "--why", "x"
    )
    terminal.wait_for(r"Type '3' to continue")
    os.write(terminal._fd, b"\x04")
    code = terminal.end()

    assert code == 1
    assert "stopped" in terminal.shown
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_purge_asks_too(database: Database, letters: list[int]):
    database.value(
        "select redrive.dismiss_v1(array[%s]::bigint[], 'ada', 'x')", letters[0]
    )
    terminal = Terminal(database.url, "purge", "--older-than", "0d")
    terminal.wait_for(r"Type '1' to continue")
    terminal.type("1")
    code = terminal.end()

    assert code == 0
    assert "1 purged" in terminal.shown
    assert (
        database.column("select id from redrive.dead_letters order by id")
        == letters[1:]
    )


def test_no_control_character_of_a_job_reaches_the_terminal(database: Database):
    from tests.factories import failure, make_job, make_worker

    job = make_job(database.conn, payload={"a": "\x1b[31mred\x07"})
    worker = make_worker(database.conn)
    evil = failure(
        message="\x1b]0;owned\x07\x1b[2J\r\n\u009b31m",
        error_class="E\x1b[0m",
        detail={},
    )
    let_next_die(database.conn, worker, failure=evil)
    database.value("select redrive.note_v1(%s, 'ada', %s)", job, "\x1b[31mnote")
    plain = re.compile(
        r"\x1b\[[0-9;]*m|[\t\r\n]"
    )  # what the command itself colours with
    for arguments in (("dlq", "ls"), ("dlq", "show", str(job)), ("dlq", "groups")):
        terminal = Terminal(database.url, *arguments)
        code = terminal.end()

        assert code == 0, terminal.shown
        left = plain.sub("", terminal.shown)

        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", left), (arguments, left)
        assert "\x1b[31m" not in terminal.shown


def test_a_campaign_is_watched_in_a_line(
    database: Database, letters: list[int]
) -> None:
    """What came of it so far, how fast, and how long it still takes."""
    made = campaigns.plan(database.conn, Filter(), actor="ada").plan
    assert made is not None
    campaigns.start(database.conn, made, Terms(), actor="ada", why="fixed")
    terminal = Terminal(database.url, "campaign", "watch", str(made))
    terminal.wait_for("canary: 0 succeeded, 0 dead again, 3 in flight")
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker)
    let_die(database.conn, worker, jobs.pop())
    complete(database.conn, worker, *jobs)
    terminal.wait_for(f"3 of {len(letters)} redriven: 2 succeeded, 1 dead again")

    assert terminal.end() == 4, "all were canaries, and too many died"


def test_dead_letters_of_others_come_in_after_the_answer(
    database: Database, tmp_path: Path
):
    """They are read twice: what was shown is what comes."""
    file = tmp_path / "dead.jsonl"
    file.write_text(
        '{"kind": "a", "payload": {"n": 1}}\n{"kind": "a", "payload": {"n": 2}}\n'
    )
    terminal = Terminal(database.url, "dlq", "import", str(file), "--source", "sqs")
    terminal.wait_for(r"Import 2 dead letters\? Type '2' to continue: ")

    assert database.value("select count(*) from redrive.dead_letters") == 0
    terminal.type("2")
    terminal.wait_for("Why: ")
    terminal.type("we move")
    assert terminal.end() == 0
    assert "2 imported" in terminal.shown
    assert database.value("select why from redrive.audit") == "we move"

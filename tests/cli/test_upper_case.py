"""Kinds and queues with upper case, as people have them who move in from other queues."""

import pytest

from redrive import Handlers
from redrive.errors import InvalidJob
from redrive.extras.targets.file import KIND
from redrive.rules.payloads.limits import check_name
from tests.cli.conftest import Redrive
from tests.factories import make_dead_letter, make_job
from tests.postgres import Database

KIND_NAME, QUEUE = "app.tasks.SendMail", "Default"


def test_a_handler_and_a_target_take_a_kind_in_upper_case() -> None:
    jobs = Handlers()

    @jobs.handle("HardWorker", queue=QUEUE)
    def work(payload: dict[str, int]) -> None: ...

    assert KIND.fullmatch("HardWorker")
    assert KIND.fullmatch("app.tasks.*")
    assert check_name("kind", KIND_NAME) == KIND_NAME
    with pytest.raises(InvalidJob):
        check_name("kind", "Größe")


def test_commands_take_names_in_upper_case(
    redrive: Redrive, database: Database
) -> None:
    done = redrive("enqueue", KIND_NAME, "{}", "--queue", QUEUE)
    assert (done.code, done.out.strip().isdigit()) == (0, True), done.err
    dead = make_dead_letter(database.conn, kind=KIND_NAME, queue=QUEUE)
    why = ("--why", "x", "--yes")

    for command in (
        ("queue", "pause", QUEUE, *why),
        ("queue", "resume", QUEUE, *why),
        ("queue", "set", QUEUE, "--fair-by", "tenant", "--history", "7d", *why),
        ("owner", "set", f"{QUEUE}/{KIND_NAME}", "mail", *why),
        ("objective", "set", f"{QUEUE}/{KIND_NAME}", "dlq_added_5m", "5", *why),
        ("limit", "set", "Emails", "--concurrency", "2", *why),
        ("dlq", "redrive", "--kind", KIND_NAME, "--to-queue", "Slow", *why),
    ):
        done = redrive(*command)
        assert done.code == 0, (command, done.out, done.err)

    listed = redrive("job", "ls", "--kind", KIND_NAME, "--json").lines
    assert {job["queue"] for job in listed} == {QUEUE, "Slow"}
    assert dead in {job["id"] for job in listed}


def test_kinds_that_differ_only_in_case_are_two(
    redrive: Redrive, database: Database
) -> None:
    make_job(database.conn, "mail.send")
    make_job(database.conn, "Mail.Send")

    assert len(redrive("job", "ls", "--kind", "Mail.Send", "--json").lines) == 1


def test_a_page_of_jobs_continues_after_a_queue_in_upper_case(
    redrive: Redrive, database: Database
) -> None:
    for _ in range(3):
        make_job(database.conn, KIND_NAME, queue=QUEUE)

    first = redrive("job", "ls", "--limit", "1", "--json")
    place = first.err.strip().removeprefix("there are more: --after ")
    assert len(redrive("job", "ls", "--after", place, "--json").lines) == 2

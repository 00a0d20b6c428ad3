"""redrive cell move: what it shows, what it refuses, and nothing before somebody agrees."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from redrive import enqueue
from redrive.live_jobs import moves
from redrive.live_jobs.moves import Move
from redrive.worker.store import Registration, register
from tests.cli.conftest import Ran, Redrive
from tests.cli.test_cells import GONE, written
from tests.factories import (
    make_dead_letter,
    make_job,
    make_limited_worker,
    silence,
)
from tests.postgres import Database, Server

KEY = "customer-17"
EU_TO_US = ("--key", KEY, "--from", "eu", "--to", "us")


@pytest.fixture
def cells(server: Server) -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(server.database()) for name in ("eu", "us")}


@pytest.fixture
def move(
    redrive: Redrive, cells: dict[str, Database], tmp_path: Path
) -> Callable[..., Ran]:
    """Run the command with these cells, and one that is gone."""
    urls = {name: database.url for name, database in cells.items()} | {"ap": GONE}

    def run(*arguments: str) -> Ran:
        return redrive(
            "cell", "move", *arguments, REDRIVE_DATABASES=written(tmp_path, urls)
        )

    return run


def test_a_plan_is_shown_and_nothing_moves_without_yes(
    move: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    eu, us = cells.values()
    for n in range(3):
        enqueue(eu.conn, "a", {"n": n}, tenant=KEY)
    make_dead_letter(eu.conn, "b", {}, tenant=KEY)
    make_limited_worker(eu.conn, "customer:{tenant}")
    eu.value("select redrive.set_limit_v1('customer:customer-17', 2, null, 'ada', 'x')")
    audit = "select count(*) from redrive.audit where action like 'move%'"

    for more in ((), ("--dry-run", "--yes", "--why", "x")):
        shown = move(*EU_TO_US, *more)
        assert shown.code == 0, shown.err
        assert "moves   3 waiting jobs, 1 dead letter" in shown.out
        assert "the limit customer:customer-17 (concurrency 2, rate None)" in shown.out
        assert "nothing was changed" in shown.out
    assert eu.value(audit) == 0

    done = move(*EU_TO_US, "--yes", "--why", "us has room", "--json")

    assert done.code == 0, done.err
    counts = {"moved": 4, "known": 0, "keys_copied": 0, "limits_copied": 1}
    assert counts.items() <= done.json.items()
    assert us.value("select concurrency from redrive.limits_v1()") == 2
    assert move(*EU_TO_US).out.startswith("moves   0 waiting jobs, 0 dead letters")


def test_a_plan_warns_of_kinds_that_no_worker_there_handles(
    move: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    eu, us = cells.values()
    for kind in ("mail.send", "pay", "pay", "report", "other"):
        make_job(eu.conn, kind, tenant=KEY)
    make_job(eu.conn, "mail.send", queue="slow", tenant=KEY)
    make_job(eu.conn, "elsewhere", tenant="customer-18")
    make_dead_letter(eu.conn, "dead", tenant=KEY)
    moving = moves.run(eu.conn, us.conn, Move(KEY, "eu", "us", "ada", "us has room"))
    while moves.look(eu.conn, us.conn, KEY).taken == 0:
        next(moving)
    make_job(eu.conn, "pay", tenant=KEY)
    for kinds in (["mail.*", "other"], ["report"]):
        worker = Registration("w", "1", 30, kinds, ["default"])
        registered = register(us.conn, worker)
    silence(us.conn, registered)

    shown = move(*EU_TO_US)

    for kind, queue, jobs in (
        ("pay", "default", "3 jobs"),
        ("report", "default", "1 job"),
        ("mail.send", "slow", "1 job"),
    ):
        told = f"no live worker in us handles {kind} in queue {queue}: {jobs} will"
        assert told in shown.out
    assert shown.out.count("warning") == 3
    unhandled = move(*EU_TO_US, "--json").json["unhandled"]
    assert unhandled[0] == {"queue": "default", "kind": "pay", "jobs": 3}
    assert len(unhandled) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--from", "eu", "--to", "eu"), 64, "name two cells"),
        (("--from", "eu", "--to", "sa"), 64, "no such cell; there are: eu, us, ap"),
        (("--from", "eu", "--to", "ap"), 69, "the database cannot be reached"),
        (("--from", "eu", "--to", "us", "--yes"), 64, "--why is missing"),
    ],
)
def test_a_move_that_cannot_be_is_refused(
    move: Callable[..., Ran], arguments: tuple[str, ...], code: int, text: str
) -> None:
    done = move("--key", KEY, *arguments)

    assert (done.code, text in done.err) == (code, True), done.err


def test_cells_of_different_schemas_are_refused(
    move: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    newest = cells["us"].value("select max(version) from redrive.migrations")
    cells["eu"].conn.execute(
        "insert into redrive.migrations (version, name, serves) values (%s, 'later', 1)",
        (newest + 1,),
    )

    done = move(*EU_TO_US)

    assert done.code == 78, done.err
    assert f"cell us has schema {newest}; run redrive migrate in both" in done.err

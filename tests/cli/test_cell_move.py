"""redrive cell move: what it shows, what it refuses, and nothing before somebody agrees."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from redrive import enqueue
from redrive.live_jobs.cell_moves import moves
from redrive.live_jobs.cell_moves.moves import Move
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


def stopped(cells: dict[str, Database]) -> int:
    """Let a move stop when it has taken out two jobs; the other cell has one of them."""
    eu, us = cells["eu"], cells["us"]
    jobs = [make_job(eu.conn, "a", {"n": n}, tenant=KEY) for n in range(2)]
    move = Move(KEY, "eu", "us", "ada", "us has room")
    moving = moves.run(eu.conn, us.conn, move)
    while moves.look(eu.conn, us.conn, KEY).taken < 2:
        next(moving)
    number = eu.value("select id from redrive.moves")
    us.rows("select redrive.take_in_v1(%s, %s)", number, jobs[:1])
    return jobs[1]


def test_a_move_is_given_up_after_it_asked(
    move: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    job = stopped(cells)

    shown = move(*EU_TO_US, "--give-up")

    assert shown.code == 0, shown.err
    assert "returns 1 job or dead letter to eu, with the old ids" in shown.out
    assert "drops   1 more, because us has them" in shown.out
    assert "nothing was changed" in shown.out
    assert move(*EU_TO_US, "--give-up", "--yes").code == 64  # no reason
    assert cells["us"].value("select ended_at from redrive.moves") is None

    done = move(*EU_TO_US, "--give-up", "--yes", "--why", "a mistake", "--json")

    assert done.json == {"put_back": 1, "known": 0, "there": 1}
    assert cells["eu"].column("select id from redrive.jobs") == [job]
    again = move(*EU_TO_US, "--give-up")
    assert again.code == 64
    assert "no move of customer-17 from eu to us is open" in again.err


@pytest.mark.parametrize("name", ["ap", "sa"])
def test_only_a_destination_that_is_lost_for_good_is_not_asked(
    move: Callable[..., Ran], cells: dict[str, Database], name: str
) -> None:
    """`ap` does not answer, and `sa` is no longer among the cells."""
    job = stopped(cells)
    cells["eu"].rows("update redrive.moves set cell = %s", name)
    arguments = ("--key", KEY, "--from", "eu", "--to", name, "--yes", "--why", "gone")

    refused = move(*arguments, "--give-up")
    assert refused.code == (69 if name == "ap" else 64)
    assert (name == "ap") == ("only if it is lost for good, add --d" in refused.err)
    assert cells["eu"].value("select count(*) from redrive.jobs") == 0

    done = move(*arguments, "--give-up", "--destination-lost")

    assert done.code == 0, done.err
    assert f"warning {name} is not asked; if it comes back" in done.out
    assert f"2 put back into eu; 0 are in {name}" in done.out
    assert job in cells["eu"].column("select id from redrive.jobs")


def test_a_destination_that_answers_is_asked_whatever_somebody_says(
    move: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    job = stopped(cells)
    lost = ("--destination-lost", "--yes", "--why", "x")

    assert "is for --give-up" in move(*EU_TO_US, *lost).err
    assert move(*EU_TO_US, "--give-up", *lost).code == 0
    assert cells["eu"].column("select id from redrive.jobs") == [job]

"""Jobs outlive an outage of a provider, and a window ends their retries."""

import json

import pytest

from redrive import enqueue, enqueue_many
from redrive.cli.main import main
from tests.factories import redrive
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

PATIENT = "tests.flow.patient:jobs"
PAIR = ("call.before", "call.now")


def _dead(database: Database, kind: str) -> int:
    (count,) = database.row(
        "select count(*) from redrive.dead_letters where kind = %s", kind
    )
    return count


def test_the_outage_that_killed_every_job_kills_none(
    database: Database, workers: Workers
) -> None:
    """With a provider away for 75 s, 40 of 40 jobs without a policy were dead."""
    away = workers.home / "provider-is-away"
    away.touch()
    enqueue_many(database.conn, [{"kind": kind} for kind in PAIR for _ in range(40)])

    workers(handlers=PATIENT)
    wait_for(lambda: _dead(database, "call.before") == 40)
    away.unlink()
    wait_for(lambda: look.live(database) == 0)

    assert [_dead(database, kind) for kind in PAIR] == [40, 0]


def test_a_window_ends_the_retries_and_neither_snoozes_nor_earlier_lives_use_it(
    database: Database, workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A window of retries was an option of the producer only."""
    plain = enqueue(database.conn, "call.window")
    snoozing = enqueue(database.conn, "call.window", {"snoozes": True})

    workers(handlers=PATIENT)
    wait_for(lambda: len(look.reasons(database)) == 2)
    first = [look.dead(database, job) for job in (plain, snoozing)]
    redrive(database.conn, [plain])
    wait_for(lambda: look.live(database) == 0)
    second = look.dead(database, plain)

    for death in (*first, second):
        assert death is not None
        assert death.reason == "attempts_exhausted"
        # five waits of at most 0.1 s fit, and eleven of at least 0.05 s do not
        assert 6 <= death.attempts <= 11
    shown = ["dlq", "show", str(plain), "--json", "--database-url", database.url]
    assert main(shown) == 0
    last = json.loads(capsys.readouterr().out)["failures"][-1]["detail"]
    assert last["window"] == 0.5
    assert 0.4 <= last["retried_for"] <= 0.5
    for command in ("dlq", "job"):
        main([command, "show", str(plain), "--database-url", database.url])
        said = " ".join(capsys.readouterr().out.split())
        assert "the window of 0.5 s for its retries was over" in said

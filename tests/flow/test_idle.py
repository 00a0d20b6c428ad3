"""What an idle worker asks the database, counted exactly: a clock is driven, and none is waited for."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from redrive.database.connections.link import Link
from redrive.observability.metrics import Metrics
from redrive.worker import store
from redrive.worker.polling import MANY_WORKERS, Polling, longest_seconds
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep import maintenance
from redrive.worker.upkeep.heartbeat import (
    BEATS_OF_MANY,
    BEATS_PER_LOOK,
    BEATS_PER_TTL,
    Heartbeat,
)
from redrive.worker.upkeep.listener import Listener
from redrive.worker.upkeep.maintenance import FOLD_SECONDS, Maintenance
from redrive.worker.upkeep.slowness import Slowness
from redrive.worker.upkeep.standstill import Standstill
from tests.factories import make_job, make_worker
from tests.postgres import Database

TTL = 30.0
BY_TIME = ("set_config", "sample_v1", "fold_series_v1", "forget_v1", "unhandled_v1")
"""In statements of a new connection, and of chores that are done once in a while."""

SECOND_MINUTE = 60.0, 120.0


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that this process sends from now on."""
    statements: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        statements.append(str(query))
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    return statements


@pytest.fixture
def one(database: Database) -> Iterator[Maintenance]:
    """The chores of one worker, which a test starts round by round. The first is done."""
    telemetry = Telemetry(Metrics(), None)
    chores = Maintenance(Link(database.url, "test"), TTL, telemetry, list, list)
    chores._do_all(0.0)
    yield chores
    chores.link.close()


def all_are_due(database: Database) -> None:
    """Let five seconds pass for the clocks of the chores."""
    database.rows("update redrive.chores set ran_at = ran_at - interval '5.1 seconds'")


def test_a_round_of_chores_with_nothing_to_do_is_one_statement(
    database: Database, one: Maintenance, sent: list[str]
) -> None:
    one._do_all(0.0)  # what the first round has counted is folded
    all_are_due(database)
    sent.clear()
    one._do_all(0.0)

    (statement,) = [s for s in sent if not any(name in s for name in BY_TIME)]
    assert "take_chores_v1" in statement


def test_a_round_does_what_there_is_to_do(
    database: Database, one: Maintenance, sent: list[str]
) -> None:
    make_job(database.conn)
    all_are_due(database)
    sent.clear()
    one._do_all(0.0)

    assert any("fold_v1" in statement for statement in sent)
    assert not any("tend_limits" in statement for statement in sent)
    assert database.value("select count(*) from redrive.deltas") == 0


def test_a_worker_that_fell_silent_is_rescued_in_the_next_round(
    database: Database, one: Maintenance, sent: list[str]
) -> None:
    lost = make_worker(database.conn)
    database.rows(
        "update redrive.workers set heard = heard - interval '1 hour', ttl = '30 s'"
    )
    all_are_due(database)
    one._do_all(0.0)

    assert any("rescue_v1" in statement for statement in sent)
    assert not database.rows("select from redrive.workers where id = %s", lost)


def test_chores_are_taken_once_among_workers(database: Database) -> None:
    everys = dict.fromkeys(maintenance.CHORES, 3600.0)
    first = store.take_chores(database.conn, everys)

    assert {"history", "forget", "unhandled"} <= first
    assert store.take_chores(database.conn, everys) == set()


def test_a_worker_that_is_no_caretaker_sends_nothing(
    one: Maintenance, sent: list[str]
) -> None:
    one.is_caretaker = one.has_jobs = lambda: False
    sent.clear()
    one._hear_of_cancelled()
    one._do_all(0.0)

    assert sent == []


def polls_in_a_minute(others: int) -> int:
    """Polls of a worker in the second minute after its last job."""
    polling, polls = Polling(0.0), 0
    polling.longest = longest_seconds(others)
    polling.found_nothing(0.0, chance=0.5)
    while (now := polling.due_at()) < SECOND_MINUTE[1]:
        polls += now >= SECOND_MINUTE[0]
        polling.found_nothing(now, chance=0.5)
    return polls


@pytest.mark.parametrize(
    ("others", "is_caretaker", "per_second"),
    [(0, True, 1.0), (20, False, 1.0), (MANY_WORKERS, False, 0.2)],
)
def test_an_idle_worker_sends_one_statement_a_second_and_a_fifth_in_a_large_fleet(
    others: int, is_caretaker: bool, per_second: float
) -> None:
    """Each poll, heartbeat, and round of chores with nothing to do is one statement."""
    beats = BEATS_OF_MANY if others >= MANY_WORKERS else BEATS_PER_TTL
    in_a_minute = polls_in_a_minute(others) + 60 / TTL * beats
    if is_caretaker:
        in_a_minute += 60 / FOLD_SECONDS

    assert in_a_minute / 60 <= per_second


@pytest.mark.parametrize(
    ("others", "looks"), [(MANY_WORKERS - 1, 8), (MANY_WORKERS, 8 / BEATS_PER_LOOK)]
)
def test_of_many_workers_each_looks_at_the_others_with_every_fourth_heartbeat(
    database: Database, sent: list[str], others: int, looks: float
) -> None:
    """A look reads the rows of all workers, and 1,000 workers looked 140 times a second."""
    one = make_worker(database.conn, "one", ttl=TTL)
    for n in range(others):
        make_worker(database.conn, f"other {n}", ttl=TTL)
    heartbeat = make_heartbeat(database.url)
    heartbeat.heard(one, 0.0)
    sent.clear()
    for at in range(8):
        heartbeat._beat(float(at))
    heartbeat.link.close()

    assert sum("beat_v2" in statement for statement in sent) == looks
    assert sum("beat_v1" in statement for statement in sent) == 8 - looks
    assert heartbeat._others == others
    assert heartbeat._heard == {one: 7.0}


def make_heartbeat(url: str) -> Heartbeat:
    """Return a heartbeat whose thread is not started."""
    return Heartbeat(
        Link(url, "test"),
        TTL,
        on_silence=lambda: None,
        on_answer=lambda: None,
        on_notify=lambda: None,
        on_failure=lambda _: None,
        inflight=lambda: 0,
        progress=lambda _: "{}",
        listener=Listener(None),
        standstill=Standstill(TTL, None, list, lambda _: 0.0, lambda _: 0.0),
        slowness=Slowness(),
    )


def test_chores_are_done_one_by_one_beside_a_locked_table(
    database: Database, one: Maintenance, sent: list[str]
) -> None:
    """Nobody can see then what to cancel, and the rescue must not wait for that."""
    all_are_due(database)
    blocker = database.session()
    blocker.rows("begin")
    blocker.rows("lock table redrive.cancellations in access exclusive mode")
    sent.clear()
    one._attempt = lambda name, _every, _do: sent.append(name)  # type: ignore[method-assign]
    one._do_all(0.0)

    assert {"rescue", "fold", "cancel"} <= set(sent)

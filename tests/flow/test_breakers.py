"""A dependency that is down costs no attempts, and nobody else's time."""

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from redrive import Handlers, enqueue, enqueue_many
from redrive.cli import main
from redrive.handlers import Breaker
from redrive.signals import DependencyOpen
from redrive.worker.protocol import Observed
from redrive.worker.run.dependencies import Admitted, Dependencies
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

HANDLERS = "tests.flow.judged:jobs"
JOBS = 400  # `make chaos` has more of them
SLOTS = 4


def _state(database: Database, name: str = "mail") -> str | None:
    found = database.column("select state from redrive.breakers where name = %s", name)
    return found[0] if found else None


def _phases(workers: Workers, phase: str) -> list[Any]:
    return [entry for entry in workers.ledger() if entry.phase == phase]


def _heard(database: Database) -> None:
    """Wait until a worker that has little to do has asked how its breakers stand, from now on."""
    asked = """
        select exists (
            select from pg_stat_activity
            where datname = current_database() and application_name = 'redrive worker'
              and query like '%%breakers_v%%' and state = 'idle' and query_start > %s)"""
    since = database.value("select clock_timestamp()")
    wait_for(lambda: database.value(asked, since), every=0.005)


def _start(workers: Workers, count: int, **options: Any) -> None:
    for _ in range(count):
        workers(handlers=HANDLERS, redrive_slots=SLOTS, **options)
    for worker in workers.started:
        worker.wait_ready()


def test_an_outage_costs_no_attempts_and_only_probes_find_out_when_it_ends(
    database: Database, workers: Workers
):
    (workers.home / "mail-is-down").touch()
    _start(workers, 2)
    enqueue_many(database.conn, [{"kind": "mail.send"} for _ in range(JOBS)])
    wait_for(lambda: _state(database) == "open")
    for worker in workers.started:
        given_back = partial(
            worker.metric, "redrive_jobs_released_total", reason="breaker mail"
        )
        wait_for(given_back, what="a worker has not heard of it")
    others = [enqueue(database.conn, "other.work") for _ in range(50)]
    wait_for(lambda: len(_phases(workers, "start")) >= len(others))
    heard_at = time.monotonic()  # and runners have been told meanwhile
    opened_times = "select opened from redrive.breakers where name = 'mail'"
    before = database.value(opened_times)
    wait_for(lambda: database.value(opened_times) >= before + 2)

    burned = database.value(
        "select count(*) from redrive.jobs where kind = 'mail.send' and attempt > 1"
    )
    held = database.value("select count(*) from redrive.jobs where kind = 'mail.send'")
    probes = database.value(opened_times) - before
    down = _phases(workers, "down")
    # those in flight have ended by then
    calls = [entry for entry in down if entry.at > heard_at + 0.5]
    (workers.home / "mail-is-down").unlink()
    wait_for(
        lambda: look.live(database) == 0, what="not all completed after the recovery"
    )
    attempts = Counter(entry.attempt for entry in _phases(workers, "up"))

    assert held == JOBS
    assert len(calls) <= probes + 1, "a call while open that was no probe"
    assert burned == 0
    assert look.reasons(database) == {}
    assert set(attempts) == {1}


def test_a_job_that_uses_a_dependency_by_name_is_given_back_while_its_breaker_is_open(
    database, workers
):
    (workers.home / "sms-is-down").touch()
    _start(workers, 1)
    for _ in range(20):
        enqueue(database.conn, "sms.send", max_attempts=50)
    wait_for(lambda: _state(database, "sms") in {"open", "half_open"})
    (workers.home / "sms-is-down").unlink()

    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {}
    assert _state(database, "sms") == "closed"
    assert look.counted(database)["released"] >= 1


def test_a_job_that_is_the_probe_of_a_breaker_may_name_it():
    sent: list[Any] = []
    dependencies = Dependencies(sent.append)
    dependencies.open = {"mail": (float("inf"), 5.0)}

    watch = Admitted(dependencies, ("mail",))
    watch.enter("mail")
    watch.leave("mail", None)

    assert sent == [Observed("mail", succeeded=True)]
    with pytest.raises(DependencyOpen):
        Admitted(dependencies, ()).enter("mail")


def test_a_window_closes_behind_an_open_breaker_all_the_same(
    database: Database, workers: Workers
):
    _start(workers, 1)
    wait_for(lambda: _state(database) == "closed")
    done = ("--why", "maintenance", "--yes", "--database-url", database.url)
    main(["breaker", "force", "mail", "open", *done])
    _heard(database)

    late = enqueue(database.conn, "mail.send", expires_in=0.2)

    wait_for(lambda: look.reasons(database) == {late: "expired"})
    assert not _phases(workers, "up")


def test_a_prober_that_is_killed_does_not_leave_the_breaker_half_open(
    database, workers
):
    (workers.home / "mail-is-down").touch()
    _start(workers, 1)
    for _ in range(12):
        enqueue(database.conn, "mail.kill")
    wait_for(lambda: _state(database) == "open")
    (workers.home / "mail-is-down").unlink()

    wait_for((workers.home / "killed").exists, what="nobody probed")
    wait_for(lambda: look.live(database) == 0, what="stuck behind a probe that died")

    assert _state(database) == "closed"
    assert look.reasons(database) == {}


def test_there_is_one_probe_whatever_becomes_of_other_breakers_meanwhile(
    database: Database, workers: Workers
):
    down, hangs = workers.home / "mail-is-down", workers.home / "mail-hangs"
    down.touch()
    _start(workers, 1)
    enqueue_many(database.conn, [{"kind": "mail.send"} for _ in range(20)])
    wait_for(lambda: _state(database) == "open")
    hangs.touch()
    down.unlink()
    wait_for(lambda: _phases(workers, "up"), what="nobody probed")

    for action in ("open", "closed", "open"):
        done = ("--why", "maintenance", "--yes", "--database-url", database.url)
        main(["breaker", "force", "sms", action, *done])
        time.sleep(1.2)  # the worker has heard of it, and told its runner
    probes = len(_phases(workers, "up"))
    hangs.unlink()
    wait_for(lambda: look.live(database) == 0)

    assert probes == 1
    assert _state(database) == "closed"


def test_an_operator_holds_a_breaker_open_and_lets_it_go(
    database: Database, workers: Workers, capsys
):
    def run(*arguments: str) -> tuple[int, str]:
        status = main([*arguments, "--database-url", database.url])
        return status, capsys.readouterr().out

    _start(workers, 1)
    wait_for(lambda: _state(database) == "closed")
    assert run("breaker", "force", "mail", "open")[0] == 0  # it only shows it
    assert run("breaker", "force", "mail", "open", "--yes")[0] == 64  # why?
    said = ("--actor", "ada", "--yes", "--why")
    assert run("breaker", "force", "nobody", "open", *said, "x")[0] == 2
    forced = run("breaker", "force", "mail", "open", *said, "their status page")
    assert forced == (0, "mail is held open\n")
    _heard(database)
    for _ in range(5):
        enqueue(database.conn, "mail.send")
    given_back = "select min(deliveries) > 0 and count(*) = 5 from redrive.jobs"
    wait_for(lambda: database.value(given_back))
    calls = len(_phases(workers, "up"))
    shown = run("breaker", "ls", "--json")[1]
    assert run("breaker", "reset", "mail", *said, "they are back")[0] == 0
    wait_for(lambda: look.live(database) == 0)

    assert calls == 0
    assert "their status page" in shown
    assert database.rows(
        "select actor, action, why from redrive.audit order by at"
    ) == [
        ("ada", "force breaker", "their status page"),
        ("ada", "reset breaker", "they are back"),
    ]


def test_an_included_registry_keeps_its_breakers_as_they_are_set():
    ours, theirs = Handlers(), Handlers()
    theirs.breaker("mail", threshold=2, cooldown=0.5)
    theirs.handle("mail.send", depends_on=["mail", "dns"])(lambda _: None)

    ours.include(theirs)

    assert ours.breakers == {
        "mail": Breaker(threshold=2, cooldown=0.5),
        "dns": Breaker(),
    }

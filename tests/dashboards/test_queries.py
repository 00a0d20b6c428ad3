"""Every query of the dashboards, asked of a real Prometheus that watches a real installation with
real trouble.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from redrive import enqueue
from tests.postgres import Database, Server
from tools.dashboards.rehearsal import Rehearsal, concrete, rehearsal, wait_for

from .conftest import Query, other_queries, queries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("rehearsal"),
]  # one scene for all

MAY_BE_EMPTY = {
    # A settlement is refused when a worker was silent past its ttl and came back; the series begins
    # with the first one.
    ("worker.json", "Settlements refused"),
    # This machine may set no limit.
    ("worker.json", "Memory"),
    # No gateway, no console, no standby and no slot is there, and nothing has waited for a day.
    *(
        ("overview.json", title)
        for title in (
            "Gateway: messages that wait",
            "Gateway: messages taken in",
            "Gateway: messages sent back",
            "Gateway: lost connections",
            "Console: answers by status",
            "Vacuum horizon",
            "Last vacuum",
            "Replication lag",
            "Replication lag in bytes",
            "WAL kept for slots",
            "Slots without a receiver",
            "Campaigns that wait",
            "Longest wait for a limit",
        )
    ),
}


class Scene(NamedTuple):
    """What is there when the questions are asked."""

    stage: Rehearsal
    database: Database


def children(pid: int) -> list[int]:
    """The processes a process started."""
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


@pytest.fixture(scope="module")
def scene(
    server: Server, tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """Jobs that succeed, fail, die, are redriven and die again; a breaker, a crash, a cut
    connection, a purge.
    """
    program, home = tool("prometheus"), tmp_path_factory.mktemp("rehearsal")
    with server.database() as database, rehearsal(database.url, home) as stage:
        database.rows(
            "select redrive.set_objective_v1("
            "'billing', 'page_on_first_dead_letter', 1, 'test', 'money')"
        )
        stage.redrive("exporter", "exporter", REDRIVE_DISK_BUDGET_GIB=1)
        stage.redrive("worker-1", "worker", "--slots", "4")
        stage.redrive(
            "worker-2",
            "worker",
            "--slots",
            "4",
            "--queue",
            "mail",
            "--queue",
            "billing",
        )
        stage.observe(program)
        for name in ("exporter", "worker-1", "worker-2"):
            stage.wait_ready(name)
        incident(stage, database)
        yield Scene(stage, database)


def incident(stage: Rehearsal, database: Database) -> None:
    """Everything that can be seen on a dashboard, within seconds."""

    work = partial(enqueue_some, database)

    def command(*arguments: str) -> None:
        assert stage.redrive("command", *arguments).wait(300) == 0, (
            stage.home / "command.log"
        ).read_text()
        del stage.ports["command"]

    def open_dead_letters() -> int:
        return database.value(
            "select count(*) from redrive.dead_letters where state = 'open'"
        )

    work(20)
    database.rows(
        "select redrive.pause_v1('archive', 'test', 'no older worker is to take it')"
    )
    enqueue(database.conn, "nobody.knows", {}, queue="archive")
    # Prometheus sees the counters before they rise
    wait_for(
        lambda: stage.prometheus.now(
            "sum(redrive_jobs_completed_total) by (instance) >= 41"
        )
    )
    tried = 'sum(redrive_job_attempts_total{outcome="succeeded"}) >= 41'
    wait_for(lambda: stage.prometheus.now(tried))
    stage.wrong("billing-release", so=True)
    stage.wrong("mail-provider", so=True)
    work(12)
    wait_for(lambda: open_dead_letters() >= 12)
    wait_for(
        lambda: stage.prometheus.now("sum(redrive_dlq_added_total) by (instance) >= 12")
    )
    stage.wrong("billing-release", so=False)
    stage.wrong("mail-provider", so=False)
    work(3, poisoned=True)
    wait_for(lambda: open_dead_letters() >= 15)
    which, why = ("--queue", "billing"), ("--why", "the fix is out", "--actor", "ada")
    command("dlq", "redrive", *which, "--limit", "1", *why, "--yes")
    wait_for(
        lambda: stage.prometheus.now(
            'sum(redrive_redrive_outcomes_total{outcome="succeeded"}) >= 1'
        )
    )
    command("dlq", "redrive", *which, "--limit", "12", *why, "--yes")
    command("purge", "--every", "1h", "--yes")
    os.kill(children(stage.processes["worker-1"].pid)[0], signal.SIGKILL)
    database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 'redrive worker%%'"
    )
    for _ in range(8):
        work(4)
        time.sleep(1)


def enqueue_some(database: Database, count: int, *, poisoned: bool = False) -> None:
    """Enqueue a number of jobs for two queues, and two for a third, one of them later."""
    for _ in range(count):
        enqueue(database.conn, "mail.welcome", {}, queue="mail")
        enqueue(
            database.conn, "invoice.charge", {"poisoned": poisoned}, queue="billing"
        )
    enqueue(database.conn, "report.build", {}, queue="reports")
    enqueue(database.conn, "report.build", {}, queue="reports", delay=3600)


def answer(stage: Rehearsal, query: Query) -> list[float]:
    """The values at this moment that are numbers."""
    found = stage.prometheus.now(concrete(query.expression, rate_interval="20s"))
    return [
        float(series["value"][1]) for series in found if series["value"][1] != "NaN"
    ]


def test_every_query_has_an_answer(scene: Scene) -> None:
    silent = {*queries(), *other_queries()}

    def ask() -> bool:
        # A rate is of the last seconds, and a machine may be slow: these run and die now.
        for poisoned in (False, True):
            enqueue_some(scene.database, 1, poisoned=poisoned)
        silent.difference_update(
            [query for query in silent if answer(scene.stage, query)]
        )
        return {(query.board, query.panel) for query in silent} <= MAY_BE_EMPTY

    try:
        wait_for(ask, every=1)  # Prometheus knows nothing new before
    except TimeoutError:
        pytest.fail(
            "no data: "
            + "; ".join(f"{q.board}, {q.panel}: {q.expression}" for q in sorted(silent))
        )


def test_figures_are_true_and_are_not_multiplied_by_the_processes_that_export_them(
    scene: Scene,
) -> None:
    stage, database = scene

    def ask(board: str, panel: str) -> float:
        (query,) = (query for query in queries(board) if query.panel == panel)
        return sum(answer(stage, query))

    def agree() -> bool:
        opened = database.value(
            "select count(*) from redrive.dead_letters where state = 'open'"
        )
        return (
            ask("dead-letters.json", "Open")
            == ask("overview.json", "Dead letters")
            == opened
            and ask("overview.json", "Workers") == 2
            and ask("worker.json", "Slots") == 8
        )

    wait_for(agree)


def test_the_alert_of_a_critical_queue_is_marked(scene: Scene) -> None:
    (mark,) = (
        query
        for query in other_queries()
        if (query.board, query.panel) == ("overview.json", "annotation Alerts")
    )

    def firing() -> set[str]:
        found = scene.stage.prometheus.now(
            concrete(mark.expression, queue="(billing|mail)")
        )
        return {series["metric"]["alertname"] for series in found}

    wait_for(lambda: "RedriveDeadLetterOnCriticalQueue" in firing())


def test_a_choice_of_one_queue_leaves_the_others_out(scene: Scene) -> None:
    for query in queries("dead-letters.json"):
        for series in scene.stage.prometheus.now(
            concrete(query.expression, rate_interval="20s", queue="billing")
        ):
            assert series["metric"].get("queue", "billing") == "billing", query

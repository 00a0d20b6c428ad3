"""redrive top: at a terminal until q is typed, and once on a pipe."""

import os
import signal
from datetime import timedelta

import pytest

from redrive.cli.operations.monitoring import top
from redrive.observability.series import now_of, read_queues
from redrive.rules.sparkline import sparkline
from redrive.rules.times import HOUR, MINUTE, period
from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.cli.test_prompts import Terminal
from tests.factories import make_dead_letter, make_jobs, make_worker
from tests.postgres import Database
from tests.sql.test_series import let_pass, record

PATIENCE = 300


@pytest.fixture
def busy(database: Database) -> Database:
    """A database with jobs, a worker, a dead letter, and two recorded minutes."""
    conn = database.conn
    make_jobs(conn, 3, queue="mail")
    measured = store.Measured("mail", "invoice.charge", [0, 9, *[0] * 15], [0] * 18)
    store.count_times(conn, [measured])
    make_dead_letter(conn, queue="bills")
    make_worker(conn, "pod-7")
    record(conn)
    let_pass(conn)
    record(conn)
    return database


def test_it_shows_what_is_wrong_queues_workers_and_causes(
    redrive: Redrive, busy: Database
) -> None:
    out = redrive("top", "--once", COLUMNS="130").out

    assert "3 ready   0 running   0 retrying   1 dead   1 worker" in out
    assert "9.75 ms" in out
    assert "pod-7" in out
    assert "no such invoice" in out
    assert "\x1b" not in out, "no colours on a pipe"
    assert "pod-7" in redrive("top", COLUMNS="130").out, "a pipe is shown one screen"


def test_a_narrow_screen_cuts_no_line_in_two(redrive: Redrive, busy: Database) -> None:
    out = redrive("top", "--once", COLUMNS="80").out

    assert max(map(len, out.splitlines())) <= 80
    assert "mail" in out


def test_a_minute_is_left_out_until_it_is_recorded(busy: Database) -> None:
    conn = busy.conn
    at = now_of(conn)
    recorded = read_queues(conn, period(at - HOUR, at, at, 100))[-1].at

    soon = top.last_minutes(conn, recorded + 2 * MINUTE + timedelta(seconds=1))
    before = top.last_minutes(conn, recorded + MINUTE + timedelta(seconds=1))

    for shown in (soon, before):
        assert [*shown.starts()][-1] == recorded


def test_an_empty_database_is_no_error(redrive: Redrive) -> None:
    out = redrive("top", "--once").out

    assert "0 workers" in out
    for table in ("Queues", "Workers", "Causes of dead letters"):
        assert f"{table}: none" in out.splitlines()


def test_a_login_that_may_not_read_causes_sees_the_rest(busy: Database) -> None:
    busy.rows("set role redrive_viewer")
    screen = top.read(busy.conn)

    assert screen.causes is None
    assert {worker["name"] for worker in screen.workers} == {"pod-7"}
    assert set(screen.points) == {"bills", "mail"}


@pytest.mark.parametrize("end", ["q", "ctrl-c"])
def test_it_is_live_until_it_is_ended(busy: Database, end: str) -> None:
    terminal = Terminal(busy.url, "top", "--interval", "0.2")
    terminal.wait_for("Causes", PATIENCE)
    make_jobs(busy.conn, 40, queue="late-queue")
    terminal.wait_for("late-queue", PATIENCE)
    if end == "q":
        terminal.type("q")
    else:
        os.kill(terminal.process.pid, signal.SIGINT)

    assert terminal.end(PATIENCE) == 0
    assert "Traceback" not in terminal.shown


def test_ctrl_c_ends_it_even_if_a_query_swallows_the_interrupt() -> None:
    """A query that it cancels may end with an error of its own instead."""
    keys = top.Keys()
    with pytest.raises(KeyboardInterrupt):
        keys.interrupt()

    assert keys.is_quit(60)


def test_a_lost_connection_is_opened_again(busy: Database) -> None:
    terminal = Terminal(busy.url, "top", "--interval", "0.2")
    terminal.wait_for("Causes", PATIENCE)
    busy.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'redrive cli'"
    )
    make_jobs(busy.conn, 40, queue="late-queue")
    terminal.wait_for("late-queue", PATIENCE)
    terminal.type("q")

    assert terminal.end(PATIENCE) == 0


def test_a_sparkline_has_a_character_for_each_value() -> None:
    assert sparkline([0, 1, 4, 8], 10) == " ▂▅█"
    assert sparkline([1, 2, 3], 2) == "▆█"
    assert sparkline([], 5) == ""
    assert sparkline([0, 0], 5) == "  "

"""Guilt is proven: whoever dies of a neighbour is a suspect, and suspects are in nobody's way."""

import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

import pytest

from redrive import enqueue, enqueue_many
from redrive.worker import store
from redrive.worker.channel import Channel
from redrive.worker.processes.os_process import OsProcess
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.shared_state import SharedState
from tests.factories import holders, silence
from tests.flow import look
from tests.flow.harness import Workers, declare_lost, kill, wait_for
from tests.postgres import Database

LOSSES = 3
"""max_losses of the handlers here."""

_BEAT_IS_TRUE = """
    select count(*) filter (where held.is_running) = 4
           and bool_and(held.id in (select j.id from redrive.jobs j))
    from redrive.workers w cross join lateral (
        select r.key::bigint as id, true as is_running
        from jsonb_each(w.progress -> 'running') r
        union all
        select n.id::bigint, false
        from jsonb_array_elements(w.progress -> 'waiting') as runner(ids),
             jsonb_array_elements_text(runner.ids) as n(id)) held
"""
"""Whether the last beat of the only worker names four running jobs, and only jobs that live."""


_IS_AT_REST = """
    select not exists (select from pg_stat_activity
                       where datname = current_database() and application_name like 'redrive%'
                         and xact_start is not null)
"""
"""Whether no session of a worker is in a transaction."""


def _stop_at_rest(database: Database, pids: Sequence[int]) -> bool:
    """Stop processes, and return True. If a transaction stays open, continue them instead.

    A worker that is stopped in a transaction may lock its row, and then nobody rescues it.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for _ in range(10):  # what it had sent may begin a transaction now
        time.sleep(0.05)
        if not database.value(_IS_AT_REST):
            _go_on(pids)
            return False
    return True


def _go_on(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _run_and_restart(
    database: Database, workers: Workers, *arguments: str, most: int
) -> int:
    """Start a worker again whenever it was killed, until no job is left. Returns the kills."""
    for kills in range(most + 1):
        worker = workers(*arguments)
        wait_for(
            lambda w=worker: w.process.poll() is not None or look.live(database) == 0
        )
        if worker.process.poll() is None:
            return kills
        declare_lost(database, worker)
        store.rescue(database.conn, 30)  # as another worker would
    raise AssertionError(f"killed more than {most} times: {look.reasons(database)}")


@pytest.mark.waits
@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_a_job_that_kills_its_pod_is_found_in_four_kills_and_no_neighbour_is_harmed(
    database: Database, workers: Workers, seconds: float
):
    """6 of 60 innocents were dead as `killed_worker` after 3 kills."""
    poison = enqueue(database.conn, "exit.pod", {"seconds": seconds})
    innocent = [
        enqueue(database.conn, "work.async", {"seconds": 0.5}, max_attempts=most)
        for _, most in zip(range(60), itertools.cycle((1, 5)), strict=False)
    ]
    kills = _run_and_restart(database, workers, "--slots", "16", most=LOSSES + 1)

    assert look.reasons(database) == {poison: "killed_worker"}
    assert kills <= LOSSES + 1
    assert {e.job for e in workers.ledger() if e.phase == "end"} == set(innocent)


def test_a_job_with_one_attempt_does_not_die_of_its_neighbour(
    database: Database, workers: Workers
):
    """A job with `max_attempts=1` outlives a runner that a neighbour kills."""
    innocent = [
        enqueue(database.conn, "work.until-file", {"file": "go"}, max_attempts=1)
        for _ in range(3)
    ]
    worker = workers("--slots", "4").wait_ready()
    wait_for(lambda: len(workers.ledger()) == len(innocent))
    poison = enqueue(database.conn, "exit.poison")
    wait_for(lambda: len(workers.starts(poison)) >= 2)
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {poison: "killed_worker"}
    assert {e.job for e in workers.ledger() if e.phase == "end"} == set(innocent)
    assert worker.process.poll() is None


def test_jobs_that_had_not_started_when_their_pod_was_killed_are_not_charged(
    database: Database, workers: Workers
):
    """+1 loss for every job held, prefetched ones too."""
    enqueue_many(database.conn, [{"kind": "work.payload-only"} for _ in range(20_000)])
    slow = 200
    enqueue_many(
        database.conn, [{"kind": "work.until-file", "payload": {"file": "go"}}] * slow
    )
    worker = workers("--slots", "4").wait_ready()
    wait_for(lambda: look.live(database) <= slow)
    # the last beat names four that run, and no job that has ended
    wait_for(lambda: database.value(_BEAT_IS_TRUE))
    kill(database, worker)
    ours = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name like 'redrive%'"
    )
    wait_for(
        lambda: not database.value(ours)
    )  # what it had sent is committed, or never will be
    held = len(holders(database.conn))
    assert held > 8, "nothing was fetched ahead"
    workers("--slots", "4")
    rescued = "select coalesce(sum(n), 0) from redrive.totals where event = 'rescued'"
    wait_for(lambda: database.value(rescued) == held)
    # before any of them can end, because that deletes its failures
    charged = database.value("select count(distinct job) from redrive.failures")
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert charged == 8, (
        "the four that ran, and the four that may have followed unreported"
    )
    assert look.reasons(database) == {}


@pytest.mark.waits
def test_suspects_take_no_slot_of_others(database: Database, workers: Workers):
    """292 of 300 instant jobs still waited after 30 s, behind 40 jobs with two losses."""
    suspects = [
        enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(40)
    ]
    database.conn.execute("update redrive.jobs set losses = 2")
    instant = [enqueue(database.conn, "work.sync") for _ in range(300)]
    worker = workers("--slots", "16").wait_ready()
    wait_for(lambda: look.live(database) == len(suspects))
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)
    mine = {e.job: e.pid for e in workers.ledger() if e.phase == "end"}

    assert set(mine) == {*suspects, *instant}
    assert not {mine[job] for job in suspects} & {mine[job] for job in instant}
    assert look.reasons(database) == {}
    assert worker.process.poll() is None


def test_a_worker_that_was_only_stopped_takes_back_what_that_cost_its_jobs(
    database: Database, workers: Workers
):
    """One kill and two pauses made a job run alone; at the next one it was dead."""
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker = workers().wait_ready()
    wait_for(lambda: workers.starts(job))
    stopped = [worker.pid, *worker.runners]
    wait_for(lambda: _stop_at_rest(database, stopped))
    silence(database.conn, holders(database.conn)[job])
    store.rescue(database.conn, 0.1)
    charged = database.value("select losses from redrive.jobs")
    _go_on(stopped)
    wait_for(lambda: database.value("select losses from redrive.jobs") == 0)
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert charged == 1
    assert worker.process.poll() is None


@pytest.mark.parametrize("had_ended", [False, True])
def test_a_runner_is_blameless_only_if_it_lived_when_it_was_given_up(had_ended: bool):
    process = subprocess.Popen(
        ["sleep", "0" if had_ended else "60"], start_new_session=True
    )
    runner = RunnerProcess(
        OsProcess(process), Channel(socket.socket()), SharedState(1), False, 0.0
    )
    if had_ended:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(2):
        runner.give_up()
    runner.process.wait()
    runner.close()

    assert runner.blameless is not had_ended

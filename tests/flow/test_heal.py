"""Heal with real workers: a deploy that mends one of two bugs."""

import time

from redrive import enqueue_many
from tests.flow import look
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database

EACH = 12


def test_a_deploy_heals_what_it_mended_and_loses_three_canaries_of_the_rest(
    database: Database, workers: Workers
) -> None:
    """Though a worker is killed while it heals."""
    enqueue_many(
        database.conn,
        [
            {"kind": kind, "payload": {"n": n}}
            for n in range(EACH)
            for kind in ("bill", "ship")
        ],
    )
    old = workers(handlers="tests.flow.healed:broken", redrive_version="a0b1c2")
    open_ones = "select count(*) from redrive.dead_letters where state = 'open'"
    wait_for(lambda: database.value(open_ones) == 2 * EACH)
    # the deploy rolls: while a worker of the old version lives, nothing is tried
    workers(handlers="tests.flow.healed:mended", redrive_version="d3e4f5").wait_ready()
    assert database.value("select count(*) from redrive.campaigns") == 0
    killed = workers(handlers="tests.flow.healed:mended", redrive_version="d3e4f5")
    killed.wait_ready()
    old.stop()
    wait_for(
        lambda: database.value(
            "select count(*) from redrive.campaigns where redriven > 0"
        )
    )
    kill(database, killed)
    over = (
        "select count(*) from redrive.campaigns where ended_at is not null"
        " and redriven = succeeded + dead_again"
    )
    wait_for(lambda: database.value(over) == 2)

    campaigns = (
        "select filter -> 'kind' ->> 0, state, actor, rate, redriven, succeeded, dead_again,"
        " conditions ->> 'version' from redrive.campaigns order by 1"
    )
    assert database.rows(campaigns) == [
        ("bill", "done", "heal", 50, EACH, EACH, 0, "===d3e4f5"),
        ("ship", "aborted", "heal", None, 3, 0, 3, "===d3e4f5"),
    ]
    left = "select kind, state, redrives, count(*) from redrive.dead_letters group by 1, 2, 3"
    assert sorted(database.rows(left)) == [
        ("bill", "resolved", 0, EACH),
        ("ship", "open", 0, EACH - 3),
        ("ship", "open", 1, 3),
        ("ship", "redriven", 0, 3),
    ]
    assert database.rows(
        "select actor, action, detail -> 'conditions' ->> 'version' from redrive.audit order by 2"
    ) == [
        ("redrive", "abort redrive", None),
        ("redrive", "end redrive", None),
        ("heal", "redrive", "===d3e4f5"),
        ("heal", "redrive", "===d3e4f5"),
    ]
    assert database.value("select bool_and(ended_at is not null) from redrive.heals")


def test_a_deploy_retries_failing_jobs_at_once_canaries_first(
    database: Database, workers: Workers
) -> None:
    """They would wait for an hour."""
    enqueue_many(database.conn, [{"kind": "call"} for _ in range(EACH)])
    old = workers(handlers="tests.flow.healed:broken", redrive_version="1.0")
    failing = "select count(*) from redrive.jobs where failed_at is not null"
    wait_for(lambda: database.value(failing) == EACH)
    database.rows("update redrive.jobs set run_at = now() + interval '1 h'")
    old.stop()

    workers(handlers="tests.flow.healed:mended", redrive_version="1.1").wait_ready()
    ready = time.monotonic()
    wait_for(lambda: look.live(database) == 0)
    print(f"{EACH} failing jobs: {time.monotonic() - ready:.1f} s after a deploy")

    starts = [e.at for e in workers.ledger() if e.phase == "start"]
    ends = [e.at for e in workers.ledger() if e.phase == "end"]
    assert len(starts) == len(ends) == EACH
    assert sum(at < max(ends[:3]) for at in starts) == 3
    campaign = "select actor, state, succeeded, conditions ->> 'version' from redrive.campaigns"
    healed = ("heal", "done", EACH, "===1.1")
    wait_for(lambda: database.rows(campaign) == [healed])


def test_a_heal_of_fewer_jobs_than_canaries_that_die_again_has_aborted(
    database: Database, workers: Workers
) -> None:
    """RedriveHealKeepsFailing: three causes with one job each ended as `done`."""
    enqueue_many(database.conn, [{"kind": "ship", "payload": {"n": 1}}])
    old = workers(handlers="tests.flow.healed:broken", redrive_version="a0b1c2")
    open_ones = "select count(*) from redrive.dead_letters where state = 'open'"
    wait_for(lambda: database.value(open_ones) == 1)
    old.stop()
    workers(handlers="tests.flow.healed:mended", redrive_version="d3e4f5")
    over = "select count(*) from redrive.campaigns where ended_at is not null"
    wait_for(lambda: database.value(over) == 1)

    ended = "select state, said, redriven, dead_again from redrive.campaigns"
    assert database.rows(ended) == [
        ("aborted", "1 of 1 died again, more than 10%", 1, 1)
    ]
    health = "select (redrive.health_v1(null) ->> 'heals_aborted')::int"
    assert database.value(health) == 1

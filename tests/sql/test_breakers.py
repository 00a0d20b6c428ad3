"""breakers_v1, take_probe_v1 and force_breaker_v1: every transition, and that none of them can be
stuck.
"""

import pytest

from redrive.worker import store
from tests.factories import make_worker
from tests.postgres import Database, Session


def _report(
    database: Session,
    failed: int = 0,
    succeeded: int = 0,
    *,
    name: str = "mail",
    threshold: int = 5,
    cooldown: float = 60,
) -> str:
    row = database.row(
        "select state, open_for, failing from redrive.breakers_v1(%s, %s, %s, %s, '{10}', %s)",
        [name],
        [failed],
        [succeeded],
        [threshold],
        [cooldown],
    )
    return row[0]


def _age(database: Database) -> None:
    """Let the open time, and any probe's lease, be over."""
    database.conn.execute(
        "update redrive.breakers set open_until = open_until - interval '1 day',"
        " probe_until = probe_until - interval '1 day'"
    )


@pytest.mark.parametrize(
    ("failed", "succeeded", "expected"),
    [
        (0, 0, "closed"),
        (4, 0, "closed"),
        (5, 0, "open"),
        (5, 5, "open"),
        (5, 6, "closed"),
        (100, 101, "closed"),
        (0, 9, "closed"),
    ],
)
def test_a_breaker_opens_at_the_threshold_when_half_of_all_calls_fail(
    database: Database, failed, succeeded, expected
):
    assert _report(database, failed, succeeded) == expected


def test_failures_add_up_within_the_window_and_not_beyond(database: Database):
    assert [_report(database, 2), _report(database, 2)] == ["closed", "closed"]
    database.conn.execute(
        "update redrive.breakers set window_at = window_at - interval '11 seconds'"
    )
    assert _report(database, 2) == "closed"
    assert [_report(database, 1), _report(database, 2)] == ["closed", "open"]


def test_an_open_breaker_becomes_half_open_by_itself_and_closes_with_a_success(
    database: Database,
):
    _report(database, 5)
    assert _report(database) == "open"
    _age(database)
    assert _report(database) == "half_open"
    assert _report(database, 0, 1) == "closed"
    assert database.row(
        "select opened, failures, open_until from redrive.breakers"
    ) == (0, 0, None)


def test_the_time_it_stays_open_doubles_up_to_sixteen_times(database: Database):
    _report(database, 5)
    spans = []
    for _ in range(7):
        spans.append(
            database.value(
                "select extract(epoch from open_until - opened_at)::int from redrive.breakers"
            )
        )
        _age(database)
        _report(database)
        _report(database, 1)
    assert spans == [60, 120, 240, 480, 960, 960, 960]


def test_one_worker_of_the_fleet_gets_the_probe_and_its_lease_runs_out(
    database: Database,
):
    workers = [make_worker(database.conn, f"w{n}") for n in range(4)]
    _report(database, 5)
    assert not store.take_probe(database.conn, "mail", workers[0], 30)
    _age(database)
    _report(database)

    assert [store.take_probe(database.conn, "mail", w, 30) for w in workers] == [
        True,
        False,
        False,
        False,
    ]
    _age(database)  # the prober was killed
    assert [store.take_probe(database.conn, "mail", w, 30) for w in workers] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("state", ["open", "closed", "half_open"])
def test_a_forced_breaker_heeds_nothing_it_sees(database: Database, state: str):
    _report(database)
    assert database.value(
        "select redrive.force_breaker_v1('mail', %s, 'ada', 'why')", state
    )
    assert [_report(database, 50), _report(database, 0, 50)] == [state, state]
    assert not store.take_probe(database.conn, "mail", make_worker(database.conn), 30)

    assert database.value(
        "select redrive.force_breaker_v1('mail', null, 'ada', 'over')"
    )
    assert _report(database) == "closed"
    assert _report(database, 5) == "open"
    assert database.column("select action from redrive.audit order by at") == [
        "force breaker",
        "reset breaker",
    ]


def test_nothing_is_written_while_all_is_well(database: Database):
    _report(database)
    before = database.value("select xmin::text || ctid::text from redrive.breakers")
    for _ in range(5):
        _report(database, 0, 100)
    assert (
        database.value("select xmin::text || ctid::text from redrive.breakers")
        == before
    )


def test_each_breaker_stands_for_itself(database: Database):
    state = "select name, state, failures, forced_by, probe_by is not null from redrive.breakers"
    assert _report(database, 5, name="bank") == "open"
    assert [_report(database, failed) for failed in (0, 1)] == ["closed", "closed"]
    assert database.rows(state + " order by name") == [
        ("bank", "open", 5, None, False),
        ("mail", "closed", 1, None, False),
    ]
    _report(database, 4)
    _age(database)
    assert [_report(database, name=name) for name in ("bank", "mail")] == [
        "half_open"
    ] * 2
    assert store.take_probe(database.conn, "mail", make_worker(database.conn), 30)
    tried = "select name from redrive.breakers where probe_by is not null"
    assert database.column(tried) == ["mail"]
    assert database.value(
        "select redrive.force_breaker_v1('bank', 'open', 'ada', 'why')"
    )

    assert database.rows(state + " order by name") == [
        ("bank", "open", 0, "ada", False),
        ("mail", "half_open", 5, None, True),
    ]


def test_reports_at_once_add_up(database: Database):
    database.let_wait("breakers_v1")
    _report(database)
    first, second = database.transaction(), database.session()
    assert _report(first, 3) == "closed"
    waiting = database.start_blocked(second, lambda: _report(second, 2), by=first)
    first.rows("commit")

    assert waiting.result(60) == "open"


def test_the_state_of_a_breaker_that_stays_locked_is_its_own(database: Database):
    assert _report(database, 5, name="bank") == "open"
    assert _report(database, 1) == "closed"
    other = database.transaction(
        "select from redrive.breakers where name = 'mail' for update"
    )

    assert _report(database, 1) == "closed"
    other.rows("rollback")


def test_a_failure_seen_while_its_breaker_is_forgotten_is_counted(database: Database):
    """It was lost, and the worker got a breaker without a name."""
    database.let_wait("breakers_v1")
    _report(database)
    database.rows(
        "update redrive.breakers set window_at = '2000-01-01', changed_at = '2000-01-01'"
    )
    forgetter, worker = database.transaction(), database.session()
    assert forgetter.value("select redrive.forget_names_v1('90 days', 100)") == 1
    reported = worker.start(lambda: _report(worker, 5))
    database.wait_until_blocked(worker)
    forgetter.rows("commit")

    assert reported.result(60) == "open"
    assert database.rows("select name, failures from redrive.breakers") == [("mail", 5)]


def test_a_clock_that_was_set_back_keeps_no_breaker_open(database: Database):
    ahead = """
        update redrive.breakers set window_at = window_at + interval '1 day',
            opened_at = opened_at + interval '1 day', open_until = open_until + interval '1 day',
            probe_until = probe_until + interval '1 day'"""
    _report(database, 5)
    database.rows(ahead)
    assert _report(database) == "half_open"
    assert store.take_probe(database.conn, "mail", make_worker(database.conn), 30)
    database.rows(ahead)
    assert store.take_probe(database.conn, "mail", make_worker(database.conn), 30)
    assert _report(database, 0, 1) == "closed"

    _report(database, 4)
    database.rows(ahead)
    assert _report(database, 4) == "closed", "those were of another window"


def test_those_who_wait_are_told_of_a_change(database: Database):
    database.rows("listen redrive")
    for failed, told in ((4, 0), (1, 1), (1, 0)):
        _report(database, failed)
        assert len(list(database.conn.notifies(timeout=0))) == told

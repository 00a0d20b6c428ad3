"""Two links that share a connection while one of them has no work."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import psycopg
import pytest

from redrive.database.connections import address
from redrive.database.connections import link as links
from redrive.database.connections.connect import OwnConnection, connect
from redrive.database.connections.link import GuestLink, Link
from redrive.database.connections.trouble import Trouble, trouble
from tests.flow.harness import wait_for
from tests.postgres import Database


class Pair(NamedTuple):
    """Who lends, and who borrows."""

    host: Link
    guest: GuestLink


@pytest.fixture
def pair(database: Database) -> Iterator[Pair]:
    host = Link(database.url, "host", statement_timeout="9s")
    pair = Pair(host, GuestLink(host, "guest", statement_timeout="4s"))
    pid(host)
    yield pair
    for link in pair:
        link.close()


def pid(link: Link) -> int:
    """The server's process behind a link."""
    with link.use() as conn:
        return conn.execute("select pg_backend_pid()").fetchall()[0][0]


def timeout(link: Link) -> str:
    """What a link has set for its transactions."""
    with link.use() as conn:
        return conn.execute("show statement_timeout").fetchall()[0][0]


def test_a_link_without_work_lends_its_connection(pair: Pair):
    """Each has its own settings in it."""
    assert pid(pair.guest) == pid(pair.host)
    assert pair.guest.is_closed
    assert [timeout(link) for link in (*pair, *pair)] == ["9s", "4s", "9s", "4s"]


def test_a_link_at_work_keeps_its_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    pair.host.keep()
    own = pid(pair.guest)
    assert pid(pair.guest) == own != pid(pair.host)

    monkeypatch.setattr(links, "QUIET_SECONDS", 0.0)
    pair.host.keep()
    assert pid(pair.guest) == pid(pair.host)
    assert pair.guest.is_closed, "quiet again, and there are two"


def test_a_guest_with_short_calls_shares_the_connection_of_a_host_at_work(pair: Pair):
    """So a worker that does no chores has two connections, however much it works."""
    pair.host.keep()
    own = pid(pair.guest)
    pair.guest.shares = True

    assert pid(pair.guest) == pid(pair.host) != own
    assert pair.guest.is_closed


def test_what_is_in_use_is_not_lent(pair: Pair):
    with pair.host.use() as conn:
        assert pid(pair.guest) != conn.info.backend_pid


def test_nobody_waits_for_a_guest_that_hangs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """It keeps what it has, as its own."""
    lent = pid(pair.host)
    with pair.guest.use() as conn:
        assert conn.info.backend_pid == lent
        other = pid(pair.host)
        monkeypatch.setattr(links, "LENT_SECONDS", "no longer")
        assert pid(pair.host) == other != lent
    assert pid(pair.guest) == lent
    assert timeout(pair.guest) == "4s"


def test_a_connection_that_comes_back_too_late_is_the_guests(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    lent, use, open_one = pid(pair.host), pair.guest.use(), connect
    use.__enter__()

    def open_meanwhile(*given: str, **settings: str) -> OwnConnection:
        use.__exit__(None, None, None)
        return open_one(*given, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(address, "connect", open_meanwhile)
        assert pid(pair.host) != lent
    assert pid(pair.guest) == lent


def test_a_connection_that_is_waited_for_is_used_when_it_comes_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(links, "LENT_SECONDS", 600.0)
    lent = pid(pair.host)
    with ThreadPoolExecutor(1) as thread:
        with pair.guest.use():
            waits = thread.submit(pid, pair.host)
            wait_for(lambda: pair.host.overdue_at < float("inf"))
        assert waits.result(60) == lent


@pytest.mark.parametrize("is_replaced", [False, True], ids=["idle", "at work"])
def test_a_connection_that_is_lost_while_it_is_lent_is_lost_to_both(
    database: Database, pair: Pair, *, is_replaced: bool
):
    """What the host wrote last, relaxed, may be gone with the server."""

    def lose() -> None:
        with pair.guest.use() as conn:
            if is_replaced:
                pid(pair.host)
            database.rows(
                "select pg_terminate_backend(%s, 60000)", conn.info.backend_pid
            )
            conn.execute("select 1")

    with pytest.raises(psycopg.OperationalError):
        lose()
    with pytest.raises(psycopg.OperationalError) as caught:
        pid(pair.host)

    assert trouble(caught.value) is Trouble.LOST
    assert pair.host.failures == 1
    assert pid(pair.host)


def test_a_connection_that_is_closed_is_not_lent(pair: Pair):
    """The guest opened one of its own, and the host went on with that, and with its settings."""
    with pair.host.use() as conn:
        conn.close()
    assert pid(pair.guest)

    with pair.host.use() as conn:
        assert conn.info.get_parameters()["application_name"] == "host"
        assert conn.has_settings
    assert pair.host.failures == 0


def test_a_guest_that_nobody_lets_in_borrows_from_a_link_at_work(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """The server has no connection left; its chores are late, not left undone."""
    pair.host.keep()

    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(address, "connect", refuse)
        with pytest.raises(psycopg.OperationalError):
            pid(pair.guest)
        assert pid(pair.guest) == pid(pair.host)
    assert pid(pair.guest) != pid(pair.host), "it is let in again"

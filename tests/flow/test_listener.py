"""What a worker hears: any number of hints by anybody who can connect."""

import time

import pytest

from redrive.worker.upkeep.listener import REST_SECONDS, Listener
from tests.postgres import Database


@pytest.mark.parametrize(
    "payload", ["x", "1e9", "-1 or so", "²", "٣", "9" * 7_000, " 1"]
)
def test_what_is_not_a_number_is_nothing(database: Database, payload: str) -> None:
    """`notify redrive, 'x'` by anybody ended the heartbeat of every worker."""
    listener, conn = Listener(["mail"]), database.connect()
    listener.hear(conn, 0.001)
    database.rows("select pg_notify('redrive', %s)", payload)

    listener.hear(conn, 1.0)
    database.rows("select pg_notify('redrive', '')")
    assert listener.hear(conn, 60.0), "what says nothing is for all"


FLOOD = """
    do $$ begin
        for n in 1..3000 loop
            perform pg_notify('redrive', n::text);
            commit;
        end loop;
    end $$"""


def test_a_flood_is_one_waking_a_while(database: Database) -> None:
    """Each notification woke every worker, which then claimed."""
    listener, conn, anybody = Listener(None), database.connect(), database.session()
    listener.hear(conn, 0.001)
    wakings, began = 0, time.monotonic()
    flood = anybody.start(lambda: anybody.rows(FLOOD))
    while not flood.done():
        wakings += listener.hear(conn, 0.05)
    conn.execute("select")  # the server has passed on all of it
    wakings += listener.hear(conn, 0.05)

    assert 1 <= wakings <= 2 + (time.monotonic() - began) / REST_SECONDS
    assert not listener.hear(conn, 0.001), "nothing is left of it"


def test_a_rest_is_over_when_the_next_beat_is_due(database: Database) -> None:
    listener, conn, began = Listener(None), database.connect(), time.monotonic()
    listener.hear(conn, 0.001)
    database.rows("select pg_notify('redrive', '')")
    heard = listener.hear(conn, 60.0)
    listener.hear(conn, 0.001, rest=600.0)

    assert heard
    assert time.monotonic() - began < 600.0


def test_a_worker_that_is_not_among_the_first_stops_listening(
    database: Database,
) -> None:
    """Postgres would wake its session for each notification."""
    listener, conn = Listener(None), database.connect()
    channels = "select pg_listening_channels()"
    listener.hear(conn, 0.001)
    before = conn.execute(channels).fetchall()
    heard = listener.hear(conn, 0.001, ears=False)
    meanwhile = conn.execute(channels).fetchall()
    listener.hear(conn, 0.001)

    assert (before, heard, meanwhile) == ([("redrive",)], False, [])
    assert conn.execute(channels).fetchall() == [("redrive",)]

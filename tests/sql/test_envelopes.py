"""An encrypted payload is taken in once: admit_envelopes_v1."""

import time
from typing import Any

import psycopg
import pytest

from redrive.encryption import Keyring, Whose
from tests.factories import make_dead_letter, redrive
from tests.postgres import Connection, Database

RING = Keyring({"k1": b"\1" * 32})
WHOSE = Whose("charge", "default")
BEFORE = "was enqueued before"


def sealed() -> tuple[Any, Any]:
    """A payload and its header, as a producer with the key sends them."""
    return RING.seal_payload(b'{"amount": 1}', WHOSE)


def copy_in(conn: Connection, *jobs: tuple[Any, Any]) -> None:
    """What a producer may do, with a key or without."""
    statement = "copy redrive.jobs (kind, payload, headers) from stdin"
    with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for payload, headers in jobs:
            copy.write_row(
                (
                    WHOSE.kind,
                    psycopg.types.json.Jsonb(payload),
                    psycopg.types.json.Jsonb(headers),
                )
            )


def test_what_was_enqueued_is_not_enqueued_again(database: Database) -> None:
    """Whoever had one, without its key, could have it run again and again."""
    conn = database.connect("redrive_producer")
    first, second = sealed(), sealed()
    copy_in(conn, first, second)
    database.rows("delete from redrive.jobs")

    for again in (first, second):
        with pytest.raises(psycopg.Error, match=BEFORE) as refused:
            copy_in(conn, sealed(), again)
        assert refused.value.sqlstate == "RD001"
        with pytest.raises(psycopg.Error, match=BEFORE):
            conn.execute(
                "select redrive.enqueue('charge', %s, headers => %s)",
                [psycopg.types.json.Jsonb(part) for part in again],
            )
    twice = sealed()
    with pytest.raises(psycopg.Error, match=BEFORE):
        copy_in(conn, twice, twice)
    copy_in(conn, twice)
    assert database.value("select count(*) from redrive.jobs") == 1


@pytest.mark.parametrize("hours", [-2, 2])
def test_what_is_older_than_what_is_remembered_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """So that a backup's payloads, or those of long ago, are worth nothing to a producer."""
    now = time.time()
    monkeypatch.setattr("redrive.encryption.time.time", lambda: now + 3600 * hours)

    with pytest.raises(
        psycopg.Error, match="more than an hour away from the database's clock"
    ):
        copy_in(database.connect("redrive_producer"), sealed())


def test_it_is_remembered_for_longer_than_it_could_come_again(
    database: Database,
) -> None:
    copy_in(database.conn, sealed(), sealed())
    database.rows(
        "update redrive.envelopes set at = at - interval '181 minutes'"
        " where digest = (select digest from redrive.envelopes limit 1)"
    )

    assert database.value("select redrive.forget_envelopes_v1(10)") == 1
    assert database.value("select redrive.forget_envelopes_v1(10)") == 0


def test_a_redrive_is_no_replay(database: Database) -> None:
    payload, headers = sealed()
    job = make_dead_letter(database.conn, payload=payload, headers=headers)

    assert redrive(database.conn, [job]) == {job: None}
